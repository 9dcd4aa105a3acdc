package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/inbox"
	"github.com/ackafter/ackafter/internal/faultproxy"
	"github.com/ackafter/ackafter/internal/pgtest"
)

// 1. Goexit in a handler for a message from failed_messages.
func TestBreakGoexitLater(t *testing.T) {
	b := newRunnerBench(t)
	b.cfg.Attempts = 1
	var exits atomic.Int32
	b.handle = func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
		if m.ID != "m1" {
			return nil
		}
		if m.Attempt == 1 {
			return errHandler
		}
		exits.Add(1)
		runtime.Goexit()
		return nil
	}
	runner, err := consumer.New(b.cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- runner.Run(ctx) }()
	b.publish(message("m1", "x"))
	select {
	case err := <-done:
		require.ErrorContains(t, err, "Goexit")
	case <-time.After(10 * time.Second):
		cancel()
		err := <-done
		t.Fatalf("still running after %d Goexits, err %v, failed_messages %d", exits.Load(), err, b.Int(t, "select count(*) from %s.failed_messages"))
	}
}

// 2. Times that PostgreSQL cannot hold.
func TestBreakTime(t *testing.T) {
	b := newBench(t, inbox.Config{})
	for i, at := range []time.Time{time.UnixMilli(1<<63 - 1), time.UnixMilli(-1 << 62), time.Unix(1<<40, 0), time.Unix(-1<<40, 0), time.Unix(1<<62, 0),
		time.Date(294277, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(-4713, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(294276, 12, 31, 23, 59, 59, 999999999, time.UTC), time.Date(-4712, 1, 1, 0, 0, 0, 0, time.UTC)} {
		m := message(fmt.Sprint("m", i), "x")
		m.Time = at
		v, err := b.SetAside(b.ctx, subscriber, failure(m, 0))
		t.Log(at.Unix(), v, err)
		if err != nil {
			t.Errorf("%v: %v", at.Unix(), err)
		}
	}
	for range 10 {
		f, err := b.RetryDue(b.ctx, subscriber, func(_ context.Context, _ pgx.Tx, f consumer.Failure) error { return nil }, again)
		if err != nil {
			t.Errorf("retry %v: %v", f, err)
		}
		if f != nil {
			t.Log(f.Message.ID, f.Message.Time)
		}
	}
}

// 3. The connection lost between the note of an attempt and its handler.
func TestBreakLostBeforeHandler(t *testing.T) {
	for _, needle := range []string{"for update\x00", "savepoint ackafter_", "commit; begin", "UPDATE 1\x00"} {
		t.Run(needle, func(t *testing.T) {
			direction := faultproxy.Request
			if needle == "UPDATE 1\x00" {
				direction = faultproxy.Reply
			}
			proxy, url := faultproxy.InFrontOf(t, pgtest.URL(t))
			direct := pgtest.New(t)
			pool := pgtest.Pool(t, url)
			defer pool.Close()
			b := benchOn(t, direct, inbox.Config{})
			in, err := inbox.NewWithConfig(pool, inbox.Config{Schema: direct.Schema})
			require.NoError(t, err)
			b.setAside(failure(message("m1", "x"), 0))
			for range 6 {
				trap := proxy.CutBefore(direction, needle)
				_, err := in.RetryDue(b.ctx, subscriber, func(context.Context, pgx.Tx, consumer.Failure) error { return nil }, again)
				select {
				case <-trap.Sprung():
				default:
					t.Fatal("not sprung", err)
				}
				require.ErrorIs(t, err, consumer.ErrOutage)
				b.MustExec(t, "update %s.failed_messages set next_attempt_at = now()") // spares the wait for the lease
			}
			f, err := in.RetryDue(b.ctx, subscriber, func(context.Context, pgx.Tx, consumer.Failure) error { return nil }, again)
			require.NoError(t, err)
			require.NotNil(t, f)
			require.Zero(t, f.Crashes, "an outage counted as a crash")
		})
	}
}

// 4. A trigger or policy that keeps the row in failed_messages.
func TestBreakRemoveSuppressed(t *testing.T) {
	b := newBench(t, inbox.Config{})
	b.setAside(failure(message("m1", "x"), 0))
	b.MustExec(t, "create function %s.keep() returns trigger language plpgsql as 'begin return null; end'")
	b.MustExec(t, "create trigger keep before delete on %s.failed_messages for each row execute function %s.keep()")
	for range 3 {
		_, err := b.retry(succeed)
		t.Log(err)
	}
	require.LessOrEqual(t, b.Int(t, "select count(*) from %s.effects"), 0, "effects although the message is still set aside")
}

// 5. A trigger that swallows the row of failed_messages.
func TestBreakAsideSwallowed(t *testing.T) {
	b := newBench(t, inbox.Config{})
	b.MustExec(t, "create function %s.keep() returns trigger language plpgsql as 'begin return null; end'")
	b.MustExec(t, "create trigger keep before insert on %s.failed_messages for each row execute function %s.keep()")
	v, err := b.SetAside(b.ctx, subscriber, failure(message("m1", "x"), 0))
	t.Log(v, err)
	require.Error(t, err)
	require.Equal(t, 0, b.Processed(t))
}

// 6. Raw savepoints across the messages of a batch.
func TestBreakRawSavepoint(t *testing.T) {
	b := newRunnerBench(t)
	b.cfg.MaxBatch = 10
	b.cfg.Handler = consumer.HandlerFunc[pgx.Tx](func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
		if m.ID == "m1" {
			if _, err := tx.Exec(ctx, "savepoint s"); err != nil {
				return err
			}
		}
		if err := b.record(ctx, tx, []*consumer.Message{m}); err != nil {
			return err
		}
		if m.ID == "m5" {
			_, err := tx.Exec(ctx, "rollback to savepoint s")
			return err
		}
		return nil
	})
	b.broker.Publish(numbered(10)...)
	stop := b.start()
	b.publish()
	stop()
	aside := b.Int(t, "select count(*) from %s.failed_messages")
	b.requireEffectsBut(aside)
}

func (b *runnerBench) requireEffectsBut(aside int) {
	b.t.Helper()
	require.Equal(b.t, b.Processed(b.t)-aside, b.Int(b.t, "select count(*) from %s.effects"), "effects; aside %d", aside)
}

// 7. The savepoint of a retry, set once more by the handler.
func TestBreakRetrySavepoint(t *testing.T) {
	b := newBench(t, inbox.Config{})
	b.setAside(failure(message("m1", "x"), 0))
	_, err := b.retry(func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "savepoint ackafter_retry"); err != nil {
			return err
		}
		return errHandler
	})
	require.ErrorIs(t, err, errHandler)
	require.Equal(t, 0, b.Int(t, "select count(*) from %s.effects"), "effects of a failed attempt")
}

// 8. A role for the transaction, as for row-level security.
func TestBreakLocalRole(t *testing.T) {
	b := newBench(t, inbox.Config{})
	b.MustExec(t, "create role %s_tenant")
	t.Cleanup(func() { b.MustExec(t, "drop owned by %s_tenant"); b.MustExec(t, "drop role %s_tenant") })
	b.MustExec(t, "grant usage on schema %s to %s_tenant")
	b.MustExec(t, "grant insert on %s.effects to %s_tenant")
	role := func(more string) apply {
		return func(ctx context.Context, tx pgx.Tx, fresh []*consumer.Message) error {
			if _, err := tx.Exec(ctx, b.SQL("set local role %s_tenant")); err != nil {
				return err
			}
			if err := b.record(ctx, tx, fresh); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, more)
			return err
		}
	}
	_, err := b.process(role("select 1"), message("m1", "x"))
	require.NoError(t, err)
	t.Run("duplicate beside it", func(t *testing.T) {
		_, err = b.process(role("select 1"), message("m1", "x"), message("m1b", "x"))
		require.NoError(t, err)
	})
	t.Run("case", func(t *testing.T) {
		_, err = b.process(role("select case when true then 1 end"), message("m2", "x"))
		require.NoError(t, err)
	})
	t.Run("retry", func(t *testing.T) {
		b.setAside(failure(message("m3", "x"), 0))
		_, err = b.RetryDue(b.ctx, subscriber, func(ctx context.Context, tx pgx.Tx, f consumer.Failure) error {
			return role("select 1")(ctx, tx, []*consumer.Message{f.Message})
		}, again)
		require.NoError(t, err)
	})
}

// 9. Statements that change what the end of a retry needs.
func TestBreakRetryHostile(t *testing.T) {
	for _, statement := range []string{"deallocate all", "set transaction read only", "set local statement_timeout = 1", "set search_path to nowhere",
		"set role pg_monitor", "set session authorization pg_monitor", "release savepoint ackafter_retry", "copy effects from stdin", "discard all", "discard temp",
		"select 1; rollback; begin", "rollback to savepoint ackafter_retry", "set lock_timeout = 1", "declare c cursor with hold for select 1",
		"select pg_terminate_backend(pg_backend_pid())", "select pg_cancel_backend(pg_backend_pid())", "set local session_replication_role = replica"} {
		t.Run(statement, func(t *testing.T) {
			b := newRunnerBench(t)
			b.cfg.Attempts = 1
			b.cfg.HandlerTimeout = 2 * time.Second
			b.cfg.Probe = consumer.Backoff{Min: time.Millisecond, Max: 20 * time.Millisecond}
			var runs atomic.Int32
			b.handle = func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
				if m.ID != "m1" {
					return nil
				}
				if m.Attempt == 1 {
					return errHandler
				}
				runs.Add(1)
				_, err := tx.Exec(ctx, statement)
				return err
			}
			stop := b.start()
			b.publish(message("m1", "x"), message("m2", "x"))
			settled := func() bool {
				return b.Int(t, "select count(*) from %s.failed_messages where next_attempt_at is not null") == 0
			}
			deadline := time.Now().Add(25 * time.Second)
			for n := 0; !settled() && time.Now().Before(deadline); n++ {
				b.broker.Publish(message(fmt.Sprint("t", n), "x"))
				time.Sleep(20 * time.Millisecond)
			}
			ok := settled()
			stop()
			aside := b.Int(t, "select count(*) from %s.failed_messages")
			var text string
			_ = b.Pool.QueryRow(b.ctx, b.SQL("select reason || ' ' || error from %s.failed_messages")).Scan(&text)
			t.Logf("%d runs, aside %d: %s", runs.Load(), aside, text)
			require.True(t, ok, "no end")
			b.requireEffectsBut(aside)
		})
	}
}

// 11. The connection behind the guard.
type thief struct{ conn *pgx.Conn }

func (s *thief) ScanRow(rows pgx.Rows) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = errors.New("refused")
		}
	}()
	s.conn = rows.Conn()
	return nil
}

func TestBreakConn(t *testing.T) {
	steal := map[string]func(ctx context.Context, tx pgx.Tx) *pgx.Conn{
		"rows": func(ctx context.Context, tx pgx.Tx) *pgx.Conn {
			rows, _ := tx.Query(ctx, "select 1")
			var s thief
			rows.Next()
			_ = rows.Scan(&s)
			rows.Close()
			return s.conn
		},
		"row": func(ctx context.Context, tx pgx.Tx) *pgx.Conn {
			var s thief
			_ = tx.QueryRow(ctx, "select 1").Scan(&s)
			return s.conn
		},
		"batch": func(ctx context.Context, tx pgx.Tx) *pgx.Conn {
			var s thief
			var b pgx.Batch
			b.Queue("select 1").Query(func(rows pgx.Rows) error { return s.ScanRow(rows) })
			_ = tx.SendBatch(ctx, &b).Close()
			return s.conn
		},
	}
	for name, f := range steal {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, inbox.Config{})
			_, err := b.process(func(ctx context.Context, tx pgx.Tx, fresh []*consumer.Message) error {
				c := f(ctx, tx)
				if c == nil {
					return errHandler
				}
				if err := b.record(ctx, tx, fresh); err != nil {
					return err
				}
				_, err := c.Exec(ctx, "commit; begin")
				return err
			}, message("m1", "x"))
			t.Log(err)
			require.Error(t, err, "the handler had the connection")
			require.Zero(t, b.Int(t, "select count(*) from %s.effects"))
		})
	}
}
