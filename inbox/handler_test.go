package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/inbox"
)

// do makes a handler that has an effect and then runs f.
func (b *bench) do(f func(ctx context.Context, tx pgx.Tx) error) apply {
	return func(ctx context.Context, tx pgx.Tx, fresh []*consumer.Message) error {
		if err := b.record(ctx, tx, fresh); err != nil {
			return err
		}
		return f(ctx, tx)
	}
}

func sql(statements ...string) func(ctx context.Context, tx pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error {
		for _, s := range statements {
			if _, err := tx.Exec(ctx, s); err != nil {
				return err
			}
		}
		return nil
	}
}

func TestTransactionEndedBySQLIsNoticed(t *testing.T) {
	for name, statements := range map[string][]string{
		"rollback":           {"rollback"},
		"rollback; begin":    {"rollback", "begin"},
		"in one statement":   {"rollback; begin"},
		"rollback and chain": {"rollback and chain"},
		"abort, work, begin": {"abort", "begin", "create temp table t (i int) on commit drop"},
		"end, work":          {"select 1; Abort Work; begin; select 2"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, inbox.Config{})
			_, err := b.process(b.do(sql(statements...)), message("m1", "x"))
			require.ErrorIs(t, err, inbox.ErrTransactionEnded)
			require.NotErrorIs(t, err, consumer.ErrOutage)
			b.requireEffects(0)
			b.requireIdle()
		})
	}
}

// What a handler commits by itself cannot be taken back, but its row is
// committed with it, so that it is not repeated either.
func TestCommitBySQLIsNoticed(t *testing.T) {
	for name, statements := range map[string][]string{
		"commit":           {"select 1; commit"},
		"commit; begin":    {"select 1; commit; begin"},
		"commit and chain": {"select 1; commit and chain"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, inbox.Config{})
			_, err := b.process(b.do(sql(statements...)), message("m1", "x"))
			require.ErrorIs(t, err, inbox.ErrTransactionEnded)
			got, err := b.process(b.record, message("m1", "x"))
			require.NoError(t, err)
			require.Equal(t, verdicts(consumer.Duplicate), got)
			b.requireEffects(1)
		})
	}
}

// What plainly commits is not even sent.
func TestCommitBySQLIsRefused(t *testing.T) {
	for _, statement := range []string{
		"commit", "COMMIT and chain", " ;-- why\n/* a /* b */ c */ Commit work", "end", "end;select 1",
		"prepare transaction 'x'", "/**/Prepare/**/Transaction 'x'", "commit; begin", "abort", "rollback work and chain",
	} {
		t.Run(statement, func(t *testing.T) {
			b := newBench(t, inbox.Config{})
			for _, swallow := range []bool{false, true} {
				_, err := b.process(b.do(func(ctx context.Context, tx pgx.Tx) error {
					err := sql(statement)(ctx, tx)
					if require.ErrorIs(t, err, inbox.ErrTransactionEnded); swallow {
						return nil
					}
					return err
				}), message("m1", "x"))
				require.ErrorIs(t, err, inbox.ErrTransactionEnded)
				b.requireEffects(0)
			}
		})
	}
}

// Whatever way the SQL takes to the server.
func TestTransactionEndedByAnyMethodIsNoticed(t *testing.T) {
	const end = "rollback and chain"
	for name, f := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"query": func(ctx context.Context, tx pgx.Tx) error {
			rows, err := tx.Query(ctx, end)
			rows.Close()
			return err
		},
		"row": func(ctx context.Context, tx pgx.Tx) error {
			_ = tx.QueryRow(ctx, end).Scan()
			return nil
		},
		"batch": func(ctx context.Context, tx pgx.Tx) error {
			var batch pgx.Batch
			batch.Queue(end)
			return tx.SendBatch(ctx, &batch).Close()
		},
		"prepared": func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Prepare(ctx, "done", end); err != nil {
				return err
			}
			return sql("done")(ctx, tx)
		},
		"rewritten": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "done", rewriter(end))
			return err
		},
		"in a savepoint": func(ctx context.Context, tx pgx.Tx) error {
			sp, err := tx.Begin(ctx)
			if err != nil {
				return err
			}
			return sql(end)(ctx, sp)
		},
		"then an insert": sql("rollback;begin", "select 1"),
		"in disguise":    sql("/*x*/select/**/1;/**/ROLLBACK/**/AND/**/CHAIN"),
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, inbox.Config{})
			_, err := b.process(b.do(f), message("m1", "x"))
			require.ErrorIs(t, err, inbox.ErrTransactionEnded)
			b.requireEffects(0)
			b.requireIdle()
		})
	}
}

type rewriter string

func (r rewriter) RewriteQuery(context.Context, *pgx.Conn, string, []any) (string, []any, error) {
	return string(r), nil, nil
}

// A word of transaction control proves nothing.
func TestInnocentSQLPasses(t *testing.T) {
	b := newBench(t, inbox.Config{})
	got, err := b.process(b.do(sql("select case when true then 'commit' end as rollback", "savepoint s", "rollback to s", "rollback work to savepoint s", "prepare p as select 1")), message("m1", "x"))
	require.NoError(t, err)
	require.Equal(t, verdicts(consumer.Processed), got)
	b.requireEffects(1)
}

func TestTransactionOfPgxBatchIsNotHandedOut(t *testing.T) {
	b := newBench(t, inbox.Config{})
	_, err := b.process(b.do(func(ctx context.Context, tx pgx.Tx) error {
		var batch pgx.Batch
		batch.BeginTx(pgx.TxOptions{})
		results := tx.SendBatch(ctx, &batch)
		require.Nil(t, results.Tx())
		return results.Close()
	}), message("m1", "x"))
	require.NoError(t, err)
}

func TestSwallowedSQLErrorFails(t *testing.T) {
	swallow := map[string]func(ctx context.Context, tx pgx.Tx){
		"exec":      func(ctx context.Context, tx pgx.Tx) { _, _ = tx.Exec(ctx, "select 1/0") },
		"query row": func(ctx context.Context, tx pgx.Tx) { _ = tx.QueryRow(ctx, "select 1/0").Scan(new(int)) },
		"query": func(ctx context.Context, tx pgx.Tx) {
			rows, _ := tx.Query(ctx, "select 1/0")
			_, _ = pgx.CollectRows(rows, pgx.RowTo[int])
		},
		"batch": func(ctx context.Context, tx pgx.Tx) {
			var batch pgx.Batch
			batch.Queue("select 1/0")
			_ = tx.SendBatch(ctx, &batch).Close()
		},
		"savepoint": func(ctx context.Context, tx pgx.Tx) {
			sp, _ := tx.Begin(ctx)
			_, _ = sp.Exec(ctx, "select 1/0")
		},
	}
	for name, f := range swallow {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, inbox.Config{})
			_, err := b.process(b.do(func(ctx context.Context, tx pgx.Tx) error {
				f(ctx, tx)
				return nil
			}), message("m1", "x"))
			require.ErrorIs(t, err, inbox.ErrSQLFailed)
			require.ErrorContains(t, err, "division by zero", "the error must name the cause")
			b.requireEffects(0)
			b.requireIdle()
		})
	}
}

func TestSavepointKeepsTheTransaction(t *testing.T) {
	b := newBench(t, inbox.Config{})
	_, err := b.process(b.do(func(ctx context.Context, tx pgx.Tx) error {
		sp, err := tx.Begin(ctx)
		require.NoError(t, err)
		require.Error(t, sql("select 1/0")(ctx, sp))
		require.NoError(t, sp.Rollback(ctx))
		return pgx.BeginFunc(ctx, tx, func(sp pgx.Tx) error { return sql("select 1")(ctx, sp) })
	}), message("m1", "x"))
	require.NoError(t, err)
	b.requireEffects(1)
}

func TestHandlerCannotEndTheTransaction(t *testing.T) {
	b := newBench(t, inbox.Config{})
	_, err := b.process(b.do(func(ctx context.Context, tx pgx.Tx) error {
		require.ErrorIs(t, tx.Commit(ctx), inbox.ErrNotYours)
		require.ErrorIs(t, tx.Rollback(ctx), inbox.ErrNotYours)
		require.PanicsWithValue(t, inbox.ErrNotYours, func() { tx.Conn() })
		sp, err := tx.Begin(ctx)
		require.NoError(t, err)
		require.PanicsWithValue(t, inbox.ErrNotYours, func() { sp.Conn() })
		return sp.Commit(ctx)
	}), message("m1", "x"))
	require.NoError(t, err)
	b.requireEffects(1)
}

// A goroutine that a handler leaves behind must not write through a connection
// that belongs to somebody else by then.
func TestTransactionIsUnusableAfterTheHandler(t *testing.T) {
	b := newBench(t, inbox.Config{})
	var kept, savepoint pgx.Tx
	_, err := b.process(b.do(func(ctx context.Context, tx pgx.Tx) (err error) {
		kept = tx
		savepoint, err = tx.Begin(ctx)
		return err
	}), message("m1", "x"))
	require.NoError(t, err)
	for _, tx := range []pgx.Tx{kept, savepoint} {
		require.ErrorIs(t, sql("select 1")(b.ctx, tx), pgx.ErrTxClosed)
		_, err := tx.Query(b.ctx, "select 1")
		require.ErrorIs(t, err, pgx.ErrTxClosed)
		require.ErrorIs(t, tx.QueryRow(b.ctx, "select 1").Scan(new(int)), pgx.ErrTxClosed)
		_, err = tx.Begin(b.ctx)
		require.ErrorIs(t, err, pgx.ErrTxClosed)
		var batch pgx.Batch
		batch.Queue("select 1")
		require.ErrorIs(t, tx.SendBatch(b.ctx, &batch).Close(), pgx.ErrTxClosed)
		_, err = tx.CopyFrom(b.ctx, pgx.Identifier{b.Schema, "effects"}, []string{"id"}, pgx.CopyFromRows(nil))
		require.ErrorIs(t, err, pgx.ErrTxClosed)
		_, err = tx.Prepare(b.ctx, "p", "select 1")
		require.ErrorIs(t, err, pgx.ErrTxClosed)
	}
	require.Panics(t, func() { kept.LargeObjects() }, "it would escape")
	require.ErrorIs(t, savepoint.Commit(b.ctx), pgx.ErrTxClosed)
	require.ErrorIs(t, savepoint.Rollback(b.ctx), pgx.ErrTxClosed)
	b.requireEffects(1)
}

func TestRowsLeftOpenFail(t *testing.T) {
	b := newBench(t, inbox.Config{})
	_, err := b.process(b.do(func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Query(ctx, "select generate_series(1, 100000)")
		return err
	}), message("m1", "x"))
	require.ErrorIs(t, err, inbox.ErrTransactionBusy)
	b.requireEffects(0)
	b.requireIdle()
}

// The query may run on for long, and with it the claim would stay locked.
func TestQueryLeftRunningIsCancelled(t *testing.T) {
	b := newBench(t, inbox.Config{})
	for range 3 {
		_, err := b.process(b.do(func(ctx context.Context, tx pgx.Tx) error {
			var batch pgx.Batch
			batch.Queue("select pg_sleep(60)")
			tx.SendBatch(ctx, &batch)
			return nil
		}), message("m1", "x"))
		require.ErrorIs(t, err, inbox.ErrTransactionBusy)
	}
	_, err := b.process(b.record, message("m1", "x"))
	require.NoError(t, err)
	b.requireEffects(1)
}

func TestDeferredConstraintIsAnAnswer(t *testing.T) {
	b := newBench(t, inbox.Config{})
	b.MustExec(t, "alter table %s.effects add unique (id) deferrable initially deferred")
	twice := b.do(sql(b.SQL("insert into %s.effects values ('m1')")))
	_, err := b.process(twice, message("m1", "x"))
	require.ErrorContains(t, err, "duplicate key value")
	require.NotErrorIs(t, err, consumer.ErrOutage, "the server has answered")
	require.NotErrorIs(t, err, consumer.ErrOutcomeUnknown)
	b.requireEffects(0)
	b.requireIdle()
}

func TestLargeObjects(t *testing.T) {
	b := newBench(t, inbox.Config{})
	_, err := b.process(b.do(func(ctx context.Context, tx pgx.Tx) error {
		require.Panics(t, func() { tx.LargeObjects() })
		var id uint32
		require.NoError(t, tx.QueryRow(ctx, "select lo_create(0)").Scan(&id))
		_, err := tx.Exec(ctx, "select lo_unlink($1)", id)
		return err
	}), message("m1", "x"))
	require.NoError(t, err)
	b.requireEffects(1)
}

func TestConnectionLostInHandlerIsAnOutage(t *testing.T) {
	b := newBench(t, inbox.Config{})
	kill := func(ctx context.Context, tx pgx.Tx) error {
		var pid int
		require.NoError(t, tx.QueryRow(ctx, "select pg_backend_pid()").Scan(&pid))
		b.MustExec(t, "select pg_terminate_backend($1, 5000)", pid)
		return nil
	}
	for name, f := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"reported": func(ctx context.Context, tx pgx.Tx) error {
			return errors.Join(kill(ctx, tx), sql("select 1")(ctx, tx))
		},
		"swallowed": func(ctx context.Context, tx pgx.Tx) error {
			_, _ = kill(ctx, tx), sql("select 1")(ctx, tx)
			return nil
		},
		"unnoticed": kill,
	} {
		_, err := b.process(b.do(f), message("m1", "x"))
		require.ErrorIs(t, err, consumer.ErrOutage, name)
		b.requireEffects(0)
	}
	_, err := b.process(b.record, message("m1", "x"))
	require.NoError(t, err)
	b.requireEffects(1)
}

// A handler that talks to others has troubles of its own.
func TestHandlersOwnNetworkErrorIsNoOutage(t *testing.T) {
	b := newBench(t, inbox.Config{})
	for _, own := range []error{
		&net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded},
		fmt.Errorf("call the tax service: %w", context.DeadlineExceeded),
	} {
		_, err := b.process(b.do(func(context.Context, pgx.Tx) error { return own }), message("m1", "x"))
		require.ErrorIs(t, err, own)
		require.NotErrorIs(t, err, consumer.ErrOutage)
		require.NotErrorIs(t, err, consumer.ErrContention)
	}
	b.requireEffects(0)
}

// pgx closes a connection whose context ends, which must not look as if the
// server had.
func TestHandlersOwnTimeoutIsNoOutage(t *testing.T) {
	b := newBench(t, inbox.Config{})
	_, err := b.process(b.do(func(ctx context.Context, tx pgx.Tx) error {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
		return sql("select pg_sleep(30)")(ctx, tx)
	}), message("m1", "x"))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, consumer.ErrOutage)
	b.requireEffects(0)
	b.requireIdle()
}

// The connection that the timeout cost may have been the pool's only one.
func TestHandlersOwnTimeoutOnTheOnlyConnectionIsNoOutage(t *testing.T) {
	b := newBench(t, inbox.Config{})
	pc := b.Pool.Config().Copy()
	pc.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(b.ctx, pc)
	require.NoError(t, err)
	defer pool.Close()
	b.Inbox, err = inbox.NewWithConfig(pool, inbox.Config{Schema: b.Schema})
	require.NoError(t, err)
	_, err = b.process(b.do(func(ctx context.Context, tx pgx.Tx) error {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
		return sql("select pg_sleep(30)")(ctx, tx)
	}), message("m1", "x"))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, consumer.ErrOutage)
}

func TestServersLimitForIdleTransactionsIsTheHandlersFault(t *testing.T) {
	b := newBench(t, inbox.Config{})
	_, err := b.process(b.do(func(ctx context.Context, tx pgx.Tx) error {
		require.NoError(t, sql("set local idle_in_transaction_session_timeout = 20")(ctx, tx))
		var pid int
		require.NoError(t, tx.QueryRow(ctx, "select pg_backend_pid()").Scan(&pid))
		require.Eventually(t, func() bool { // meanwhile, the transaction is idle
			return b.Int(t, "select count(*) from pg_stat_activity where pid = $1", pid) == 0
		}, 10*time.Second, 5*time.Millisecond)
		return nil
	}), message("m1", "x"))
	require.ErrorContains(t, err, "idle-in-transaction timeout")
	require.NotErrorIs(t, err, consumer.ErrOutage)
	b.requireEffects(0)
}
