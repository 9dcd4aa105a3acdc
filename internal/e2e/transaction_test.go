package e2e

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
)

// endsBySQL is a handler that has its effect, ends the transaction by SQL, and
// says that all is well.
func (w *world) endsBySQL(sql string) consumer.HandlerFunc[pgx.Tx] {
	effect := w.effect()
	return func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
		if err := effect(ctx, tx, m); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
		return err
	}
}

// failOnce runs a worker until its one message has failed, and stops it.
func (w *world) failOnce(h consumer.HandlerFunc[pgx.Tx]) {
	w.t.Helper()
	p := w.parts()
	p.Handler = h
	p.Retry = consumer.Backoff{Min: time.Hour, Max: time.Hour}
	k := w.start(p)
	eventually(w.t, "the attempt has failed", func() bool {
		streams := k.Health().Streams
		return len(streams) == 1 && streams[0].Retrying == 1
	})
	k.stop()
	require.Equal(w.t, 1, w.log.count(lineFailed))
	w.q.requireReady(1)
}

func TestHandlerThatEndsItsTransactionIsNotAcknowledged(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"rollback":           "rollback",
		"commit":             "commit", // which is not sent
		"rollback and begin": "select 1; rollback; begin",
		"begun with effects": "select 1; rollback; begin; select pg_current_xact_id()",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.q.send("a")
			w.failOnce(w.endsBySQL(sql))
			w.requireNoTrace()
			require.Equal(t, 1, w.log.count("the handler ended its transaction by SQL"))

			k := w.start(w.parts())
			w.requireSettled("a")
			k.stop()
			w.q.requireReady(0)
		})
	}
}

// What a handler commits behind another statement it has committed, together with
// its claim.
func TestHandlerThatCommitsBySQLIsReportedAndTakesEffectOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.q.send("a")
	w.failOnce(w.endsBySQL("select 1; commit"))
	w.requireEffects("a")
	require.Equal(t, 1, w.log.count("the handler ended its transaction by SQL"))

	k := w.start(w.parts())
	eventually(t, "a duplicate", func() bool { return w.log.count(lineDuplicate) == 1 })
	k.stop()
	w.requireEffects("a")
	w.q.requireReady(0)
}

func TestSwallowedSQLErrorIsNotAcknowledged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.q.send("a")
	effect := w.effect()
	swallow := func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
		err := effect(ctx, tx, m)
		_, _ = tx.Exec(ctx, "select 1/0")
		return err
	}
	w.failOnce(swallow)
	w.requireNoTrace()
	require.Equal(t, 1, w.log.count("division by zero"), "the log names what was swallowed")

	p := w.parts()
	p.Handler = consumer.HandlerFunc[pgx.Tx](func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
		if m.Attempt < 3 {
			return swallow(ctx, tx, m)
		}
		w.requireNoTrace()
		return effect(ctx, tx, m)
	})
	k := w.start(p)
	w.requireSettled("a")
	k.stop()
	w.q.requireReady(0)
}

// Whatever way an attempt fails, the next one begins with nothing of it left.
func TestFailedAttemptsLeaveNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.q.send("a")
	effect := w.effect()
	failures := []func(context.Context, pgx.Tx) error{
		func(context.Context, pgx.Tx) error { return errors.New("no") },
		func(context.Context, pgx.Tx) error { panic("no") },
		func(ctx context.Context, _ pgx.Tx) error { <-ctx.Done(); return nil },
		func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, "select pg_sleep(30)"); return err },
		func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "select no_such_column")
			return err
		},
		func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Query(ctx, "select 1"); return err }, // not closed
	}
	var clean atomic.Int32
	p := w.parts()
	p.HandlerTimeout, p.Attempts = 200*time.Millisecond, len(failures)+1
	p.Handler = consumer.HandlerFunc[pgx.Tx](func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
		if w.db.Processed(t) == 0 && w.effects() == 0 {
			clean.Add(1)
		}
		if err := effect(ctx, tx, m); err != nil || m.Attempt > len(failures) {
			return err
		}
		return failures[m.Attempt-1](ctx, tx)
	})
	k := w.start(p)
	w.requireSettled("a")
	k.stop()
	require.EqualValues(t, len(failures)+1, clean.Load(), "attempts that found no trace of an earlier one")
	require.Equal(t, len(failures), w.log.count(lineFailed))
	w.q.requireReady(0)
}
