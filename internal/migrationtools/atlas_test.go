package migrationtools

import (
	"context"
	"database/sql"
	"os"
	"testing"

	"ariga.io/atlas/sql/migrate"
	"ariga.io/atlas/sql/postgres"
	"ariga.io/atlas/sql/sqltool"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/migrations"
)

// The Go packages behind the atlas command read both forms of the files; the command itself is not run here.
func TestAtlas(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T, string) (migrate.Dir, error){
		"split": func(t *testing.T, path string) (migrate.Dir, error) {
			files, err := migrations.SplitFS("")
			require.NoError(t, err)
			require.NoError(t, os.CopyFS(path, files))
			return sqltool.NewGolangMigrateDir(path)
		},
		"combined": func(t *testing.T, path string) (migrate.Dir, error) {
			files, err := migrations.FS("")
			require.NoError(t, err)
			require.NoError(t, os.CopyFS(path, files))
			return sqltool.NewGooseDir(path)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, database := testContext(t), newDatabase(t)
			dir, err := open(t, t.TempDir())
			require.NoError(t, err)
			require.NoError(t, withSQL(database, func(db *sql.DB) error { return atlasUp(ctx, db, dir) }))
			require.NoError(t, migrations.Check(ctx, pool(t, database), ""))
		})
	}
}

func atlasUp(ctx context.Context, db *sql.DB, dir migrate.Dir) error {
	sum, err := dir.Checksum()
	if err != nil {
		return err
	}
	if err := migrate.WriteSumFile(dir, sum); err != nil {
		return err
	}
	driver, err := postgres.Open(db)
	if err != nil {
		return err
	}
	executor, err := migrate.NewExecutor(driver, dir, migrate.NopRevisionReadWriter{})
	if err != nil {
		return err
	}
	return executor.ExecuteN(ctx, 0)
}
