package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/inbox"
	"github.com/ackafter/ackafter/internal/pgtest"
	"github.com/ackafter/ackafter/internal/servers"
)

// A row whose replication was given up is visible, and yet would be lost by a
// failover. Its message must not count as processed before the standby is back.
func TestDuplicateWaitsForTheSynchronousStandby(t *testing.T) {
	pgtest.URL(t) // skips with -short
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server, err := servers.StartPostgreSQL(ctx, t.TempDir(), servers.PostgreSQLConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	db := pgtest.On(t, server.URL())
	for _, cancels := range []bool{false, true} {
		testStandby(ctx, t, db, cancels)
	}
}

// testStandby also serves pools that ask the server to cancel a statement whose
// context ended: it then answers a commit with COMMIT, and a warning.
func testStandby(ctx context.Context, t *testing.T, db *pgtest.DB, cancels bool) {
	b := benchOn(t, db, inbox.Config{CommitTimeout: 300 * time.Millisecond})
	if cancels {
		pc := db.Config().Copy()
		cancelling(pc)
		pool, err := pgxpool.NewWithConfig(ctx, pc)
		require.NoError(t, err)
		defer pool.Close()
		b.Inbox, err = inbox.NewWithConfig(pool, inbox.Config{Schema: db.Schema, CommitTimeout: 300 * time.Millisecond})
		require.NoError(t, err)
	}
	awaitStandby := func(name string) {
		b.MustExec(t, "alter system set synchronous_standby_names = '"+name+"'")
		b.MustExec(t, "select pg_reload_conf()")
	}
	awaitStandby("nobody")

	// Each of the server's processes learns of it in its own time.
	var id string
	var n int
	require.Eventually(t, func() bool {
		n++
		id = fmt.Sprint("m", n)
		_, err := b.process(b.record, message(id, "x"))
		return errors.Is(err, consumer.ErrOutcomeUnknown)
	}, 10*time.Second, time.Millisecond)
	require.Eventually(t, func() bool { return b.Processed(t) == n }, 10*time.Second, 5*time.Millisecond,
		"PostgreSQL did not give up the wait, so that this test shows nothing")
	_, err := b.process(b.record, message(id, "x"))
	require.ErrorIs(t, err, consumer.ErrOutage, "counted as processed, but is on one machine only")

	awaitStandby("")
	var got []consumer.Verdict
	require.Eventually(t, func() bool {
		got, err = b.process(b.record, message(id, "x"))
		return err == nil
	}, 10*time.Second, time.Millisecond)
	require.Equal(t, verdicts(consumer.Duplicate), got)
	b.requireEffects(n)
	b.MustExec(t, "drop table %s.effects")
	b.MustExec(t, "delete from %s.processed_messages")
}

func TestCheckWarnsOfCommitsThatAStandbyMisses(t *testing.T) {
	pgtest.URL(t)
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server, err := servers.StartPostgreSQL(ctx, t.TempDir(), servers.PostgreSQLConfig{
		Settings: map[string]string{"synchronous_standby_names": "nobody", "synchronous_commit": "local"},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	b := benchOn(t, pgtest.On(t, server.URL()), inbox.Config{})
	var warned string
	p := plan
	p.Warn = func(problem string) { warned = problem }
	require.NoError(t, b.Check(b.ctx, p))
	require.Contains(t, warned, "synchronous_commit is local")
}
