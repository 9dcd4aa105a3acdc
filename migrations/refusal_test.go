package migrations

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

func TestANewerDatabaseIsRefused(t *testing.T) {
	t.Parallel()
	pool := connect(t)
	schema := applied(t, pool, "newer_")
	run(t, pool, fmt.Sprintf("insert into %s (version) values (%d)", quote(schema, "schema_version"), Version+1))

	for _, err := range []error{
		Apply(testContext(t), pool, Config{Schema: schema}),
		Check(testContext(t), pool, schema),
	} {
		require.ErrorIs(t, err, ErrNewer)
		require.ErrorContains(t, err, fmt.Sprintf("has version %d, this release knows up to %d: upgrade", Version+1, Version))
	}
}

// newRole makes a role that can log in and, on the tables of schema, do nothing.
func newRole(t *testing.T, admin *pgxpool.Pool, schema string) string {
	t.Helper()
	role := schema + "_role"
	run(t, admin, fmt.Sprintf("create role %s login password '%s'", quote(role), role))
	t.Cleanup(func() { run(t, admin, "drop owned by "+quote(role)+"; drop role "+quote(role)) })
	return role
}

func TestAMissingPrivilegeNamesTheGrant(t *testing.T) {
	t.Parallel()
	admin, schema := connect(t), newSchema(t, "denied_")
	role := newRole(t, admin, schema)

	err := Apply(testContext(t), connect(t, as(role)), Config{Schema: schema})

	requireCode(t, err, codeNoSchema)
	require.ErrorContains(t, err, "grant create on database")
	require.ErrorContains(t, err, "to "+quote(role))
	requireVersion(t, admin, schema, 0)
}

func TestARoleThatMayOnlyReadIsToldSo(t *testing.T) {
	t.Parallel()
	admin := connect(t)
	schema := applied(t, admin, "hidden_")
	role := newRole(t, admin, schema)
	pool := connect(t, as(role))

	for _, err := range []error{
		Apply(testContext(t), pool, Config{Schema: schema}),
		Check(testContext(t), pool, schema),
	} {
		requireCode(t, err, codeNoPrivilege)
		require.ErrorContains(t, err, "grant usage on schema "+quote(schema)+" and select on "+quote(schema)+".schema_version")
	}

	run(t, admin, fmt.Sprintf("grant usage on schema %[1]s to %[2]s; grant select on %[1]s.schema_version to %[2]s",
		quote(schema), quote(role)))
	require.NoError(t, Apply(testContext(t), pool, Config{Schema: schema}))
	require.NoError(t, Check(testContext(t), pool, schema))
}

func TestAnExistingSchemaNeedsNoRightOnTheDatabase(t *testing.T) {
	t.Parallel()
	admin, schema := connect(t), newSchema(t, "given_")
	role := newRole(t, admin, schema)
	run(t, admin, fmt.Sprintf("create schema %s authorization %s", quote(schema), quote(role)))

	require.NoError(t, Apply(testContext(t), connect(t, as(role)), Config{Schema: schema}))
}

func TestATableOfSomeoneElseIsNotAdopted(t *testing.T) {
	t.Parallel()
	pool, schema := connect(t), newSchema(t, "taken_")
	run(t, pool, fmt.Sprintf("create schema %[1]s; create table %[1]s.processed_messages (id int)", quote(schema)))

	err := Apply(testContext(t), pool, Config{Schema: schema})

	requireCode(t, err, codeDuplicateTable)
	require.ErrorContains(t, err, "not from these migrations")
	requireVersion(t, pool, schema, 0)
}

func TestALockedTableBoundsTheWait(t *testing.T) {
	t.Parallel()
	pool := connect(t)
	schema := applied(t, pool, "locked_")
	holdLock(t, "lock table "+quote(schema, "schema_version"))

	err := Apply(testContext(t), pool, Config{Schema: schema, LockTimeout: 50 * time.Millisecond})

	requireCode(t, err, codeLockTimeout)
	require.ErrorContains(t, err, "Config.LockTimeout, 50ms: see who in pg_locks")
}

func TestAnotherMigrationBoundsTheWait(t *testing.T) {
	t.Parallel()
	pool, schema := connect(t), newSchema(t, "busy_")
	holdLock(t, fmt.Sprintf("select pg_advisory_xact_lock(%d)", lockKey(schema)))

	err := Apply(testContext(t), pool, Config{Schema: schema, LockTimeout: time.Nanosecond})
	requireCode(t, err, codeLockTimeout)

	err = Apply(testContext(t), pool, Config{Schema: schema, Timeout: 200 * time.Millisecond})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "Config.Timeout, 200ms")
}

// holdLock keeps another session's transaction open until the end of the test.
func holdLock(t *testing.T, sql string) {
	t.Helper()
	other := connect(t)
	tx, err := other.Begin(testContext(t))
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
	_, err = tx.Exec(testContext(t), sql)
	require.NoError(t, err)
}

func requireCode(t *testing.T, err error, code string) {
	t.Helper()
	var server *pgconn.PgError
	require.ErrorAs(t, err, &server)
	require.Equal(t, code, server.Code, "%v", err)
}
