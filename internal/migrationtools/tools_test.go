package migrationtools

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/migrations"
)

type direction func(ctx context.Context, database *pgx.ConnConfig, schema string) error

type tool struct{ up, down direction }

func tools() map[string]tool {
	onSQL := func(do func(context.Context, *sql.DB, string) error) direction {
		return func(ctx context.Context, database *pgx.ConnConfig, schema string) error {
			return withSQL(database, func(db *sql.DB) error { return do(ctx, db, schema) })
		}
	}
	tern := func(version int32) direction {
		return func(ctx context.Context, database *pgx.ConnConfig, schema string) error {
			return withConn(ctx, database, func(c *pgx.Conn) error { return ternTo(ctx, c, schema, version) })
		}
	}
	withoutContext := func(do func(*sql.DB, string) error) direction {
		return onSQL(func(_ context.Context, db *sql.DB, schema string) error { return do(db, schema) })
	}
	return map[string]tool{
		"goose":          {onSQL(gooseUp), onSQL(gooseDown)},
		"golang-migrate": {withoutContext(golangMigrateUp), withoutContext(golangMigrateDown)},
		"tern":           {tern(migrations.Version), tern(0)},
	}
}

func TestTools(t *testing.T) {
	t.Parallel()
	for name, tool := range tools() {
		for _, schema := range []string{migrations.DefaultSchema, `we"ird-Schema`, "it's--; $1 {}"} {
			t.Run(name+" "+schema, func(t *testing.T) {
				t.Parallel()
				testTool(t, tool, schema)
			})
		}
	}
}

func testTool(t *testing.T, tool tool, schema string) {
	ctx, database := testContext(t), newDatabase(t)
	p := pool(t, database)

	require.NoError(t, tool.up(ctx, database, schema))
	require.NoError(t, migrations.Check(ctx, p, schema))
	require.NoError(t, migrations.Apply(ctx, p, migrations.Config{Schema: schema}))
	require.Equal(t, []string{"begun_attempts", "failed_messages", "let_go_messages", "processed_messages", "schema_version"}, tables(t, p, schema))
	require.NoError(t, tool.up(ctx, database, schema), "a second run has nothing to do")

	require.NoError(t, tool.down(ctx, database, schema))
	version, err := migrations.Current(ctx, p, schema)
	require.NoError(t, err)
	require.Zero(t, version)
	require.Empty(t, tables(t, p, schema))

	require.NoError(t, tool.up(ctx, database, schema))
	require.NoError(t, migrations.Check(ctx, p, schema))
}

// The tools must make what Apply makes, so that a worker cannot tell who did it.
func TestToolsMakeTheSameTables(t *testing.T) {
	t.Parallel()
	ctx, reference := testContext(t), newDatabase(t)
	want := pool(t, reference)
	require.NoError(t, migrations.Apply(ctx, want, migrations.Config{}))
	for name, tool := range tools() {
		database := newDatabase(t)
		require.NoError(t, tool.up(ctx, database, migrations.DefaultSchema), name)
		require.Equal(t, columnsAndConstraints(t, want), columnsAndConstraints(t, pool(t, database)), name)
	}
}

// A tool that runs over what Apply made must not think that it succeeded, and must break nothing.
func TestAToolAfterApplyIsRefused(t *testing.T) {
	t.Parallel()
	for name, tool := range tools() {
		ctx, database := testContext(t), newDatabase(t)
		p := pool(t, database)
		require.NoError(t, migrations.Apply(ctx, p, migrations.Config{}))
		before := columnsAndConstraints(t, p)

		require.ErrorContains(t, tool.up(ctx, database, migrations.DefaultSchema), "already exists", name)

		require.NoError(t, migrations.Check(ctx, p, ""), name)
		require.Equal(t, before, columnsAndConstraints(t, p), name)
	}
}

func tables(t *testing.T, p *pgxpool.Pool, schema string) []string {
	t.Helper()
	return lines(t, p, `select tablename::text from pg_tables where schemaname = $1 order by 1`, schema)
}

func columnsAndConstraints(t *testing.T, p *pgxpool.Pool) []string {
	t.Helper()
	return lines(t, p, `
		select concat_ws(' ', attrelid::regclass, attname, atttypid::regtype, attnotnull, attcollation)
		from pg_attribute where attnum > 0 and attrelid in (select oid from pg_class where relnamespace = $1::regnamespace)
		union all
		select concat_ws(' ', conrelid::regclass, conname, pg_get_constraintdef(oid))
		from pg_constraint where connamespace = $1::regnamespace
		order by 1`, migrations.DefaultSchema)
}

func lines(t *testing.T, p *pgxpool.Pool, query, schema string) []string {
	t.Helper()
	rows, err := p.Query(testContext(t), query, schema)
	require.NoError(t, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return all
}
