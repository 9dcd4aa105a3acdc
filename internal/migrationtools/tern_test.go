package migrationtools

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/tern/v2/migrate"

	"github.com/ackafter/ackafter/migrations"
)

func ternTo(ctx context.Context, conn *pgx.Conn, schema string, version int32) error {
	files, err := migrations.FS(schema)
	if err != nil {
		return err
	}
	migrator, err := migrate.NewMigrator(ctx, conn, "public.ackafter_tern_version")
	if err != nil {
		return err
	}
	if err := migrator.LoadMigrations(files); err != nil {
		return err
	}
	return migrator.MigrateTo(ctx, version)
}
