package inbox_test

import (
	"context"
	"database/sql/driver"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/inbox"
)

// tooSlow costs the transaction its connection, which pgx closes when a context
// ends, and tells nobody.
func tooSlow(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	_, _ = tx.Exec(ctx, "select pg_sleep(30)")
}

// Whoever goes on with a connection that a handler has lost by itself sees one
// that is closed, as in an outage. It is none: the runner would wait for ever.
func TestLostConnectionSwallowedIsNoOutage(t *testing.T) {
	b := newBench(t, inbox.Config{})
	for name, next := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"exec":   sql("select 1"),
		"queued": func(_ context.Context, tx pgx.Tx) error { return inbox.Queue(tx, "select 1") },
	} {
		_, err := b.process(b.do(func(ctx context.Context, tx pgx.Tx) error {
			tooSlow(ctx, tx)
			return next(ctx, tx)
		}), message("m1", "x"))
		require.Error(t, err, name)
		require.NotErrorIs(t, err, consumer.ErrOutage, name)
		b.requireEffects(0)
	}
	b.requireIdle()
}

// In a batch, the next message sees it.
func TestLostConnectionSwallowedInABatch(t *testing.T) {
	b := newRunnerBench(t)
	b.handle = func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
		if m.ID == "m3" {
			tooSlow(ctx, tx)
		}
		return nil
	}
	b.cfg.MaxBatch, b.cfg.RetryLater = 10, []time.Duration{}
	b.broker.Publish(numbered(10)...)
	b.start()
	b.publish()
	b.requireAside(1)
	require.Equal(t, "failed", b.reason("m3"))
	b.requireChanges(9)
}

// A savepoint takes the mark of a lost race off the transaction, but not off the
// error that the handler passes on.
func TestContentionInASavepoint(t *testing.T) {
	b := newBench(t, inbox.Config{LockTimeout: 10 * time.Millisecond})
	b.MustExec(t, "create table %s.account (n int)")
	b.MustExec(t, "insert into %s.account values (0)")
	rival, err := b.Pool.Begin(b.ctx)
	require.NoError(t, err)
	defer func() { _ = rival.Rollback(b.ctx) }()
	update := sql(b.SQL("update %s.account set n = 1"))
	require.NoError(t, update(b.ctx, rival))
	_, err = b.process(b.do(func(ctx context.Context, tx pgx.Tx) error {
		return pgx.BeginFunc(ctx, tx, func(savepoint pgx.Tx) error { return update(ctx, savepoint) })
	}), message("m1", "x"))
	require.ErrorIs(t, err, consumer.ErrContention)
	b.requireEffects(0)
}

type panics struct{}

// Value implements driver.Valuer.
func (panics) Value() (driver.Value, error) { panic("no value") }

// An argument that panics while it is encoded is the handler's panic, wherever
// that happens, and costs no connection its place in the pool.
func TestArgumentThatPanics(t *testing.T) {
	for name, f := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"exec": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "select $1::text", panics{})
			return err
		},
		"row": func(ctx context.Context, tx pgx.Tx) error {
			return tx.QueryRow(ctx, "select $1::text", panics{}).Scan(nil)
		},
		"queued": func(_ context.Context, tx pgx.Tx) error { return inbox.Queue(tx, "select $1::text", panics{}) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newRunnerBench(t)
			b.handle = func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
				if m.ID == "m3" {
					return f(ctx, tx)
				}
				return nil
			}
			b.cfg.MaxBatch, b.cfg.Attempts, b.cfg.RetryLater = 10, 2, []time.Duration{}
			began := time.Now()
			b.broker.Publish(numbered(10)...)
			b.start()
			b.publish()
			require.Less(t, time.Since(began), 8*time.Second, "somebody has waited for a connection")
			b.requireAside(1)
			b.requireChanges(9)
			require.Equal(t, 1, b.Int(t, "select count(*) from %s.failed_messages where error like '%%no value%%'"))
		})
	}
}
