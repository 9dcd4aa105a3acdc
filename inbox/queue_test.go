package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/inbox"
)

// newQueueBench is a runner in batches on accounts whose balance must not be
// negative. The handler is what runs, in the place of the bench's own.
func newQueueBench(t *testing.T, handler consumer.HandlerFunc[pgx.Tx]) *runnerBench {
	b := newRunnerBench(t)
	b.MustExec(t, "create table %s.accounts (id int primary key, balance bigint not null check (balance >= 0))")
	b.MustExec(t, "insert into %s.accounts select n, 1000 from generate_series(0, 9) n")
	b.cfg.Handler = handler
	b.cfg.MaxBatch = 50
	b.cfg.RetryLater = []time.Duration{}
	return b
}

func (b *runnerBench) balance() int { return b.Int(b.t, "select sum(balance) from %s.accounts") }

// numbered returns n messages with the ids m0, m1 and so on.
func numbered(n int) []*consumer.Message {
	ms := make([]*consumer.Message, n)
	for i := range ms {
		ms[i] = message(fmt.Sprint("m", i), fmt.Sprint(i))
	}
	return ms
}

func TestQueue(t *testing.T) {
	var b *runnerBench
	var mu sync.Mutex
	var failures []error
	update := func() string { return b.SQL("update %s.accounts set balance = balance - $2 where id = $1") }
	b = newQueueBench(t, func(_ context.Context, tx pgx.Tx, m *consumer.Message) error {
		switch m.ID {
		case "m13": // may not be overdrawn
			return inbox.Queue(tx, update(), 1, 1_000_000)
		case "m14": // is no SQL
			return inbox.Queue(tx, "no SQL")
		case "m15": // cannot be encoded
			return inbox.Queue(tx, update(), "one", make(chan int))
		}
		return inbox.Queue(tx, update(), 1, 1)
	})
	b.cfg.Attempts = 1
	b.cfg.Classify = func(err error) error {
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			failures = append(failures, err)
		}
		return err
	}
	b.broker.Publish(numbered(200)...)
	b.start()
	b.publish()
	require.Equal(t, 10_000-197, b.balance())
	b.requireAside(3)
	for id, want := range map[string]string{"m13": "accounts_balance_check", "m14": "syntax error", "m15": "chan int"} {
		var got string
		require.NoError(t, b.Pool.QueryRow(b.ctx, b.SQL("select error from %s.failed_messages where message_id = $1"), id).Scan(&got))
		require.Contains(t, got, want)
	}
	var pgErr *pgconn.PgError
	require.True(t, func() bool {
		for _, err := range failures {
			if errors.As(err, &pgErr) && pgErr.ConstraintName == "accounts_balance_check" {
				return true
			}
		}
		return false
	}(), "the error is not the server's own: %v", failures)
}

// What is queued goes before what follows through the same transaction.
func TestQueueIsSeenByReads(t *testing.T) {
	var b *runnerBench
	b = newQueueBench(t, func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
		read := func(tx pgx.Tx) (balance int, err error) {
			err = tx.QueryRow(ctx, b.SQL("select balance from %s.accounts where id = 1")).Scan(&balance)
			return balance, err
		}
		before, err := read(tx)
		if err != nil {
			return err
		}
		if err := inbox.Queue(tx, b.SQL("update %s.accounts set balance = balance - 1 where id = 1")); err != nil {
			return err
		}
		savepoint, err := tx.Begin(ctx)
		if err != nil {
			return err
		}
		if err := inbox.Queue(savepoint, b.SQL("update %s.accounts set balance = 0 where id = 1")); err != nil {
			return err
		}
		if err := savepoint.Rollback(ctx); err != nil {
			return err
		}
		after, err := read(tx)
		if err == nil && after != before-1 {
			err = fmt.Errorf("%d after %d", after, before)
		}
		return err
	})
	b.broker.Publish(numbered(100)...)
	b.start()
	b.publish()
	b.requireAside(0)
	require.Equal(t, 10_000-100, b.balance())
}

// A statement that could not be sent must not be forgotten, even by a handler
// that swallows the error.
func TestQueueThatCannotBeSentFails(t *testing.T) {
	var b *runnerBench
	b = newQueueBench(t, func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
		rows, err := tx.Query(ctx, "select generate_series(1, 1000)")
		if err != nil {
			return err
		}
		defer rows.Close()
		if err := inbox.Queue(tx, b.SQL("update %s.accounts set balance = balance - 1 where id = 1")); err != nil {
			return err
		}
		if m.ID == "m3" {
			_, _ = tx.Exec(ctx, "select 1") // while the rows are unread
		}
		return nil
	})
	b.cfg.Attempts = 1
	b.broker.Publish(numbered(10)...)
	b.start()
	b.publish()
	b.requireAside(1)
	require.Equal(t, 10_000-9, b.balance())
}

func TestQueueRefuses(t *testing.T) {
	b := newBench(t, inbox.Config{})
	tx, err := b.Pool.Begin(b.ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(b.ctx) }()
	require.ErrorContains(t, inbox.Queue(tx, "select 1"), "the transaction that the handler was given")

	var kept, savepoint pgx.Tx
	_, err = b.process(b.do(func(ctx context.Context, tx pgx.Tx) (err error) {
		kept = tx
		if savepoint, err = tx.Begin(ctx); err != nil {
			return err
		}
		if err := savepoint.Commit(ctx); err != nil {
			return err
		}
		require.ErrorIs(t, inbox.Queue(savepoint, "select 1"), pgx.ErrTxClosed)
		return inbox.Queue(tx, b.SQL("insert into %s.effects (id) values ('queued')"))
	}), message("m1", "x"))
	require.NoError(t, err, "without a runner, too")
	require.Equal(t, 1, b.Int(t, "select count(*) from %s.effects where id = 'queued'"))
	require.ErrorIs(t, inbox.Queue(kept, "select 1"), pgx.ErrTxClosed)
}

// What one message of a batch does to the transaction is its own fault, and not
// that of the next.
func TestBatchBlamesTheRightMessage(t *testing.T) {
	wrong := map[string]func(ctx context.Context, tx pgx.Tx) error{
		"swallowed error": func(ctx context.Context, tx pgx.Tx) error {
			_, _ = tx.Exec(ctx, "select 1/0")
			return nil
		},
		"rows left open": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Query(ctx, "select generate_series(1, 10)")
			return err
		},
		"ended":             sql("rollback"),
		"ended in disguise": sql("select 1; rollback"),
		"ended and begun":   sql("select 1; rollback; begin"),
		"committed":         sql("commit"),
		"queued":            func(_ context.Context, tx pgx.Tx) error { return inbox.Queue(tx, "select 1/0") },
		"queued, and ended": func(_ context.Context, tx pgx.Tx) error { return inbox.Queue(tx, "rollback") },
		"statement":         sql("select 1/0"),
		"panic":             func(context.Context, pgx.Tx) error { panic("wrong") },
	}
	for name, do := range wrong {
		t.Run(name, func(t *testing.T) {
			b := newRunnerBench(t)
			var mu sync.Mutex
			alone := map[string]int{}
			batch := 0
			b.handle = func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
				mu.Lock()
				if batch++; m.Attempt > 1 {
					alone[m.ID]++
				}
				mu.Unlock()
				if m.ID == "m20" {
					return do(ctx, tx)
				}
				return nil
			}
			b.cfg.MaxBatch = 50
			b.cfg.Attempts = 2
			b.cfg.RetryLater = []time.Duration{}
			b.broker.Publish(numbered(50)...)
			b.start()
			b.publish()
			b.requireAside(1)
			b.requireChanges(49)
			require.Equal(t, map[string]int{"m20": 1}, alone, "only that one has failed")
			// 21 until m20 is found out, the 49 others together, and m20 twice: a wrong
			// blame would set innocents apart, one after the other.
			require.LessOrEqual(t, batch, 75, "calls of the handler")
		})
	}
}

// A commit that only the server can see must not commit the claims of the other
// messages of the batch, which would never be handled then.
func TestBatchDoesNotSendHiddenCommits(t *testing.T) {
	for name, do := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"commit": sql("select 1; commit"),
		"end":    sql("select 1; end; begin"),
		"rewritten": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "select 1", rewriter("commit"))
			return err
		},
		"several": sql("select 'commit'"), // is innocent, and handled alone all the same
	} {
		t.Run(name, func(t *testing.T) {
			b := newRunnerBench(t)
			b.handle = func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
				if m.ID == "m20" || m.ID == "m30" {
					return do(ctx, tx)
				}
				return nil
			}
			b.cfg.MaxBatch = 50
			b.broker.Publish(numbered(50)...)
			b.start()
			b.publish()
			b.requireAside(0) // where it was committed, it is a duplicate
			b.requireChanges(50)
			require.Equal(t, 50, b.Int(t, "select count(distinct id) from %s.effects"))
		})
	}
}

// Batches that change the same rows in different order deadlock, which costs
// time only.
func TestBatchDeadlocksCostTimeOnly(t *testing.T) {
	var b *runnerBench
	b = newQueueBench(t, func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
		return inbox.Queue(tx, b.SQL("update %s.accounts set balance = balance - 1 where id = $1"), rand.N(10))
	})
	b.MustExec(t, "alter system set deadlock_timeout = '20ms'")
	b.MustExec(t, "select pg_reload_conf()")
	b.cfg.Workers = 4
	b.cfg.Buffer = 400
	b.broker.Publish(numbered(2000)...)
	b.start()
	b.publish()
	b.requireAside(0)
	require.Equal(t, 10_000-2000, b.balance())
	require.Equal(t, 2000, b.Processed(t))
}

// However pgx sends statements: only the one that fails is at fault.
func TestQueueInEveryMode(t *testing.T) {
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			var b *runnerBench
			b = newQueueBench(t, func(_ context.Context, tx pgx.Tx, m *consumer.Message) error {
				amount := 1
				if m.ID == "m13" {
					amount = 1_000_000
				}
				return inbox.Queue(tx, b.SQL("update %s.accounts set balance = balance - $1 where id = 1"), amount)
			})
			cfg := b.Pool.Config()
			cfg.ConnConfig.DefaultQueryExecMode = mode
			pool, err := pgxpool.NewWithConfig(b.ctx, cfg)
			require.NoError(t, err)
			defer pool.Close()
			b.cfg.Inbox, err = inbox.NewWithConfig(pool, inbox.Config{Schema: b.Schema})
			require.NoError(t, err)
			b.cfg.Attempts = 1
			b.broker.Publish(numbered(60)...)
			stop := b.start()
			b.publish()
			stop()
			b.requireAside(1)
			require.Equal(t, 10_000-59, b.balance())
			require.Equal(t, 60, b.Processed(t))
		})
	}
}

// Nor what undoes more than its own: a rollback, or one to a savepoint that
// another message has set.
func TestBatchDoesNotSendHiddenRollbacks(t *testing.T) {
	queued := func(statement string) func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
		return func(_ context.Context, tx pgx.Tx, _ *consumer.Message) error { return inbox.Queue(tx, statement) }
	}
	for name, do := range map[string]func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error{
		"commit behind a comment":   queued("--\rend"),
		"rollback behind a comment": queued("--\rrollback"),
		"savepoint of another": func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
			if m.ID == "m3" {
				return sql("savepoint s")(ctx, tx)
			}
			return sql("rollback to savepoint s")(ctx, tx)
		},
	} {
		for _, queue := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				b := newRunnerBench(t)
				b.cfg.Handler = consumer.HandlerFunc[pgx.Tx](func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
					send := func(sql string, args ...any) error { return inbox.Queue(tx, sql, args...) }
					if !queue {
						send = func(sql string, args ...any) error { _, err := tx.Exec(ctx, sql, args...); return err }
					}
					if err := send(b.SQL("insert into %s.effects values ($1)"), m.ID); err != nil || m.ID != "m3" && m.ID != "m6" {
						return err
					}
					return do(ctx, tx, m)
				})
				b.cfg.MaxBatch, b.cfg.Attempts, b.cfg.RetryLater = 20, 1, []time.Duration{}
				b.broker.Publish(numbered(20)...)
				b.start()
				b.publish()
				for i := range 20 {
					if id := fmt.Sprint("m", i); id != "m3" && id != "m6" {
						require.Equal(t, 1, b.Int(t, "select count(*) from %s.effects where id = $1", id), id)
					}
				}
			})
		}
	}
}

// What was given back stands behind what was delivered later, and still comes in
// the order of delivery.
func TestBatchHandlerGetsTheOrderOfDelivery(t *testing.T) {
	b := newRunnerBench(t)
	failed := false
	b.cfg.Handler, b.cfg.MaxBatch = nil, 10
	b.cfg.Batch = consumer.BatchHandlerFunc[pgx.Tx](func(ctx context.Context, tx pgx.Tx, ms []*consumer.Message) error {
		number := func(m *consumer.Message) (n int) {
			_, err := fmt.Sscan(m.ID[1:], &n)
			require.NoError(t, err)
			return n
		}
		for i, m := range ms {
			if i > 0 && number(m) < number(ms[i-1]) {
				t.Errorf("%s comes behind %s", m.ID, ms[i-1].ID)
			}
		}
		if !failed {
			failed = true
			return consumer.Blame(ms[len(ms)-1], errHandler)
		}
		return b.record(ctx, tx, ms)
	})
	b.broker.Publish(numbered(100)...)
	b.start()
	b.publish()
	b.requireEffects(100)
}
