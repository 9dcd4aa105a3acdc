package migrationtools

import (
	"context"
	"database/sql"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/ackafter/ackafter/migrations"
)

func gooseUp(ctx context.Context, db *sql.DB, schema string) error {
	files, err := migrations.FS(schema)
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files, goose.WithTableName("ackafter_goose_version"))
	if err != nil {
		return err
	}
	_, err = provider.Up(ctx)
	return err
}

func gooseDown(ctx context.Context, db *sql.DB, schema string) error {
	files, err := migrations.FS(schema)
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files, goose.WithTableName("ackafter_goose_version"))
	if err != nil {
		return err
	}
	_, err = provider.DownTo(ctx, 0)
	return err
}
