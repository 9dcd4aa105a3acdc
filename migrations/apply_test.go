package migrations

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

func TestApplyToAFreshDatabase(t *testing.T) {
	t.Parallel()
	pool, schema := connect(t), newSchema(t, "fresh_")
	requireVersion(t, pool, schema, 0)
	require.ErrorIs(t, Check(testContext(t), pool, schema), ErrOutdated)

	require.NoError(t, Apply(testContext(t), pool, Config{Schema: schema}))

	requireVersion(t, pool, schema, Version)
	require.NoError(t, Check(testContext(t), pool, schema))
	run(t, pool, "insert into "+quote(schema, "processed_messages")+" (subscriber_id, message_id) values ('s', 'm')")
}

func TestApplyAgainChangesNothing(t *testing.T) {
	t.Parallel()
	pool := connect(t)
	schema := applied(t, pool, "again_")
	run(t, pool, "insert into "+quote(schema, "processed_messages")+" (subscriber_id, message_id) values ('s', 'm')")
	before := catalog(t, pool, schema)

	require.NoError(t, Apply(testContext(t), pool, Config{Schema: schema}))

	require.Equal(t, before, catalog(t, pool, schema))
	var rows int
	require.NoError(t, pool.QueryRow(testContext(t), "select count(*) from "+quote(schema, "processed_messages")).Scan(&rows))
	require.Equal(t, 1, rows)
}

func TestApplyInSchemasWithOddNames(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{`we"ird-Schema`, "UPPER ", "it's--; $1 {}", "ackafter.", "日本語", "ackafter"} {
		t.Run(prefix, func(t *testing.T) {
			t.Parallel()
			pool := connect(t)
			schema := applied(t, pool, prefix)
			requireVersion(t, pool, schema, Version)
			require.NoError(t, Apply(testContext(t), pool, Config{Schema: schema}))
		})
	}
}

func TestApplyWhateverTheSearchPath(t *testing.T) {
	t.Parallel()
	admin, evil := connect(t), newSchema(t, "evil_")
	makeLookalikes(t, admin, evil)
	want := catalog(t, admin, applied(t, admin, "plain_"))
	for name, path := range map[string]string{
		"empty":   `""`,
		"missing": "no_such_schema",
		"hostile": evil + ", pg_catalog",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := connect(t, parameter("search_path", path))
			schema := applied(t, pool, "path_")
			requireVersion(t, pool, schema, Version)
			require.Equal(t, want, catalog(t, admin, schema))
		})
	}
}

// The files must not lean on the search_path that Apply sets: the tools run them without it.
func TestFilesWhateverTheSearchPath(t *testing.T) {
	t.Parallel()
	admin, evil := connect(t), newSchema(t, "evil_")
	makeLookalikes(t, admin, evil)
	want := catalog(t, admin, applied(t, admin, "plain_"))

	pool, schema := connect(t, parameter("search_path", evil+", pg_catalog")), newSchema(t, "path_")
	for _, m := range loaded(t, schema) {
		run(t, pool, m.up)
	}
	require.Equal(t, want, catalog(t, admin, schema))
	requireVersion(t, pool, schema, Version)
}

// makeLookalikes fills a schema with what an unqualified name would find first.
func makeLookalikes(t *testing.T, pool *pgxpool.Pool, schema string) {
	t.Helper()
	s := quote(schema)
	for _, sql := range []string{
		"create schema " + s,
		"create table " + s + ".schema_version (version int)",
		"insert into " + s + ".schema_version values (99)",
		"create table " + s + ".processed_messages (nothing int)",
		"create domain " + s + ".text as pg_catalog.text",
		"create domain " + s + ".bytea as pg_catalog.bytea",
		"create domain " + s + ".timestamptz as pg_catalog.timestamptz",
		"create function " + s + ".now() returns pg_catalog.timestamptz immutable return timestamptz 'epoch'",
		"create function " + s + ".octet_length(pg_catalog.text) returns int immutable return 1",
		"create function " + s + ".le(int, int) returns bool immutable return true",
		"create operator " + s + ".<= (function = " + s + ".le, leftarg = int, rightarg = int)",
		"create operator " + s + ".>= (function = " + s + ".le, leftarg = int, rightarg = int)",
		"create operator " + s + ".= (function = " + s + ".le, leftarg = int, rightarg = int)",
	} {
		run(t, pool, sql)
	}
}

func TestApplyWritesWhereReadOnlyIsTheDefault(t *testing.T) {
	t.Parallel()
	applied(t, connect(t, parameter("default_transaction_read_only", "on")), "readonly_")
}

func TestAFailedMigrationLeavesThoseBeforeItAndNothingOfItself(t *testing.T) {
	t.Parallel()
	pool, schema := connect(t), newSchema(t, "broken_")
	cfg, err := Config{Schema: schema}.withDefaults()
	require.NoError(t, err)
	broken := migration{version: Version + 1, name: "broken", up: "create table " + quote(schema, "half") + " (); select 1/0;"}

	err = applyAll(testContext(t), pool, cfg, append(loaded(t, schema), broken))

	require.ErrorContains(t, err, "broken")
	require.ErrorContains(t, err, "division by zero")
	requireVersion(t, pool, schema, Version)
	require.NotContains(t, catalog(t, pool, schema), "half")
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	err := Apply(t.Context(), nil, Config{Schema: "a\x00b", LockTimeout: -1, Timeout: -time.Second})
	require.ErrorContains(t, err, "control character")
	require.ErrorContains(t, err, "Config.LockTimeout is -1ns")
	require.ErrorContains(t, err, "Config.Timeout is -1s")
}
