package migrationtools

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/golang-migrate/migrate/v4"
	postgres "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/migrations"
)

// newMigrate returns a migrator that closes db with itself.
func newMigrate(db *sql.DB, schema string) (*migrate.Migrate, error) {
	files, err := migrations.SplitFS(schema)
	if err != nil {
		return nil, err
	}
	source, err := iofs.New(files, ".")
	if err != nil {
		return nil, err
	}
	target, err := postgres.WithInstance(db, &postgres.Config{MigrationsTable: "ackafter_migrate_version"})
	if err != nil {
		return nil, err
	}
	return migrate.NewWithInstance("iofs", source, "pgx5", target)
}

func golangMigrateUp(db *sql.DB, schema string) error {
	m, err := newMigrate(db, schema)
	if err != nil {
		return err
	}
	if err := m.Up(); err != nil && !errors.Is(err, migrate.ErrNoChange) {
		return err
	}
	return nil
}

func golangMigrateDown(db *sql.DB, schema string) error {
	m, err := newMigrate(db, schema)
	if err != nil {
		return err
	}
	return m.Down()
}

func TestGolangMigrateTakesOverFromApply(t *testing.T) {
	t.Parallel()
	ctx, database := testContext(t), newDatabase(t)
	require.NoError(t, migrations.Apply(ctx, pool(t, database), migrations.Config{}))
	require.NoError(t, withSQL(database, func(db *sql.DB) error {
		m, err := newMigrate(db, "")
		if err != nil {
			return err
		}
		return m.Force(migrations.Version)
	}))
	require.NoError(t, withSQL(database, func(db *sql.DB) error { return golangMigrateUp(db, "") }))
	require.NoError(t, withSQL(database, func(db *sql.DB) error { return golangMigrateDown(db, "") }))
	require.Empty(t, tables(t, pool(t, database), migrations.DefaultSchema))
}
