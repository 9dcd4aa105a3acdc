//go:build unix

package e2e

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/internal/pgtest"
	"github.com/ackafter/ackafter/internal/servers"
)

// bouncerPool is how many connections PgBouncer has, for twice as many workers.
const bouncerPool = 3

func TestThroughPgBouncerInTransactionMode(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]pgx.QueryExecMode{
		"exec": pgx.QueryExecModeExec, "simple_protocol": pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			throughPgBouncer(t, mode)
		})
	}
}

func throughPgBouncer(t *testing.T, mode pgx.QueryExecMode) {
	const total = 500
	w := newWorldOn(t, pgtest.URL(t), amqpURL(t))
	ctx, cancel := context.WithTimeout(t.Context(), serverLimit)
	defer cancel()
	bouncer, err := servers.StartPgBouncer(ctx, t.TempDir(), w.databaseURL, servers.PgBouncerConfig{PoolSize: bouncerPool})
	require.NoError(t, err)
	closeAtEnd(t, bouncer)
	p := w.parts()
	p.DatabaseURL, p.Workers = bouncer.URL(), 2*bouncerPool
	p.Pool = func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode }
	p.Handler = failing(w.effect())
	all := ids("", total)
	w.q.send(all...)
	w.q.send(all[:50]...) // duplicates
	k := w.start(p)
	eventually(t, "every copy settled", func() bool { return w.log.count("ackafter.verdict=") >= total+50 })
	k.stop()
	w.requireEffects(all...)
	w.q.requireReady(0)
	requireNoSessionState(ctx, t, bouncer.URL(), w.databaseURL)
}

// sessionState is what a worker could leave behind on a connection.
const sessionState = `select pg_backend_pid(),
	current_setting('lock_timeout') || ',' || current_setting('statement_timeout') || ',' ||
	current_setting('transaction_isolation') || ',' || current_setting('search_path') || ',' ||
	(select count(*) from pg_prepared_statements) || ',' ||
	(select count(*) from pg_locks where pid = pg_backend_pid() and locktype = 'advisory')`

// requireNoSessionState compares all connections of PgBouncer with a fresh one.
func requireNoSessionState(ctx context.Context, t *testing.T, bouncer, direct string) {
	t.Helper()
	_, want := stateOf(ctx, t, direct)
	pids := map[int]bool{}
	for range bouncerPool {
		pid, got := stateOf(ctx, t, bouncer) // its transaction stays open, so the next one gets another connection
		require.Equal(t, want, got)
		pids[pid] = true
	}
	require.Len(t, pids, bouncerPool, "different connections")
}

// stateOf asks in a transaction that stays open until the end of the test.
func stateOf(ctx context.Context, t *testing.T, url string) (pid int, state string) {
	t.Helper()
	cfg, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
	conn, err := pgx.ConnectConfig(ctx, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	tx, err := conn.Begin(ctx)
	require.NoError(t, err)
	require.NoError(t, tx.QueryRow(ctx, sessionState).Scan(&pid, &state))
	return pid, state
}
