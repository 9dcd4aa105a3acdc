package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/inbox"
)

// A goroutine that a handler leaves behind in the midst of a statement must
// neither crash the process nor reach anybody else's transaction.
func TestStatementUnderWayWhenTheHandlerReturns(t *testing.T) {
	b := newBench(t, inbox.Config{})
	var left sync.WaitGroup
	endless := map[string]func(ctx context.Context, tx pgx.Tx) error{
		"exec": sql("select pg_sleep(3)"),
		"query": func(ctx context.Context, tx pgx.Tx) error {
			rows, _ := tx.Query(ctx, "select pg_sleep(3)")
			defer rows.Close()
			for rows.Next() {
			}
			return rows.Err()
		},
		"row": func(ctx context.Context, tx pgx.Tx) error {
			return tx.QueryRow(ctx, "select pg_sleep(3)").Scan(nil)
		},
		"batch": func(ctx context.Context, tx pgx.Tx) error {
			var batch pgx.Batch
			batch.Queue("select pg_sleep(3)")
			return tx.SendBatch(ctx, &batch).Close()
		},
		"savepoint": func(ctx context.Context, tx pgx.Tx) error {
			return pgx.BeginFunc(ctx, tx, func(sp pgx.Tx) error { return sql("select pg_sleep(3)")(ctx, sp) })
		},
		"many": func(ctx context.Context, tx pgx.Tx) error {
			for {
				if err := sql("select 1")(ctx, tx); err != nil {
					return err
				}
			}
		},
	}
	for name, statement := range endless {
		for range 3 {
			_, err := b.process(b.do(func(_ context.Context, tx pgx.Tx) error {
				begun := make(chan struct{})
				left.Go(func() {
					close(begun)
					_ = statement(context.Background(), tx)
				})
				<-begun
				return nil
			}), message("m1", "x"))
			if err == nil { // the goroutine came too late, and found the transaction closed
				b.MustExec(t, "delete from %s.processed_messages")
				b.MustExec(t, "delete from %s.effects")
				continue
			}
			require.ErrorIs(t, err, inbox.ErrTransactionBusy, name)
			require.NotErrorIs(t, err, consumer.ErrOutage, name)
			b.requireEffects(0)
		}
	}
	left.Wait()
	b.requireIdle()
}

// An insert that inserts nothing proves nothing.
func TestNoRowIsNoDuplicate(t *testing.T) {
	b := newBench(t, inbox.Config{})
	b.MustExec(t, `create function %s.nothing() returns trigger language plpgsql as 'begin return null; end'`)
	b.MustExec(t, `create trigger nothing before insert on %s.processed_messages
		for each row when (new.message_id like 'lost%') execute function %s.nothing()`)
	_, err := b.process(b.record, message("lost", "x"))
	require.ErrorContains(t, err, "trigger")
	require.ErrorIs(t, err, consumer.ErrOutage)
	_, err = b.process(b.record, message("found", "x"), message("lost", "x"))
	require.ErrorIs(t, err, consumer.ErrOutage, "not acknowledged: nobody knows of the lost one")
	got, err := b.process(b.record, message("found", "x"))
	require.NoError(t, err)
	require.Equal(t, verdicts(consumer.Duplicate), got)
	b.requireEffects(1)

	b.MustExec(t, `drop trigger nothing on %s.processed_messages`)
	b.MustExec(t, `create trigger nothing before insert on %s.processed_messages
		for each row execute function %s.nothing()`)
	require.ErrorContains(t, b.Check(b.ctx, plan), "trigger")
}

func TestConflictWithAnotherConstraintIsNoDuplicate(t *testing.T) {
	b := newBench(t, inbox.Config{})
	b.MustExec(t, "alter table %s.processed_messages add unique (message_id)")
	_, err := b.process(b.record, message("m1", "x"))
	require.NoError(t, err)
	_, err = b.Process(b.ctx, "shipping", []*consumer.Message{message("m1", "x")}, b.record)
	require.ErrorIs(t, err, consumer.ErrOutage)
	require.ErrorContains(t, err, "duplicate key value")
	b.requireEffects(1)
}

// What a handler does to its session must not keep later messages from being
// claimed for ever.
func TestConnectionThatCannotClaimIsNotKept(t *testing.T) {
	for _, statement := range []string{
		"set role pg_monitor", "set default_transaction_read_only = on", "set session characteristics as transaction read only",
	} {
		t.Run(statement, func(t *testing.T) {
			b := newBench(t, inbox.Config{})
			pc := b.Pool.Config().Copy()
			pc.MaxConns = 1
			pool, err := pgxpool.NewWithConfig(b.ctx, pc)
			require.NoError(t, err)
			defer pool.Close()
			in, err := inbox.NewWithConfig(pool, inbox.Config{Schema: b.Schema})
			require.NoError(t, err)
			process := func(f apply, id string) error {
				_, err := in.Process(b.ctx, subscriber, []*consumer.Message{message(id, "x")}, f)
				return err
			}
			require.NoError(t, process(b.do(sql(statement)), "m1"))
			require.ErrorIs(t, process(b.record, "m2"), consumer.ErrOutage)
			require.NoError(t, process(b.record, "m2"))
			b.requireEffects(2)
		})
	}
}

// These look like the database's, and are the handler's.
func TestHandlersOwnTroublesAreNoOutage(t *testing.T) {
	b := newBench(t, inbox.Config{})
	short := func(ctx context.Context, tx pgx.Tx) {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
		rows, _ := tx.Query(ctx, "select pg_sleep(30)")
		for rows.Next() {
		}
		rows.Close() // and nobody asks for its error
	}
	for name, f := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"a timeout in other words": func(ctx context.Context, tx pgx.Tx) error {
			short(ctx, tx)
			return errors.New("could not load")
		},
		"a timeout swallowed": func(ctx context.Context, tx pgx.Tx) error {
			short(ctx, tx)
			return nil
		},
		"another server":     sql("do $$ begin raise exception 'no route' using errcode = '08001'; end $$"),
		"a limit of its own": sql("do $$ begin raise exception 'too much' using errcode = '53400'; end $$"),
	} {
		_, err := b.process(b.do(f), message("m1", "x"))
		require.Error(t, err, name)
		require.NotErrorIs(t, err, consumer.ErrOutage, name)
	}
	_, err := b.process(b.do(sql("do $$ begin raise exception 'disk full' using errcode = '53100'; end $$")), message("m1", "x"))
	require.ErrorIs(t, err, consumer.ErrOutage)
	b.requireEffects(0)
	b.requireIdle()
}

// cancelling lets a pool send cancel requests when a context ends.
func cancelling(pool *pgxpool.Config) {
	pool.ConnConfig.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: time.Second}
	}
}

// A handler that cuts its own statement short, swallows that and goes on has
// failed: its closed connection is no outage.
func TestOwnTimeoutThatIsSwallowedIsNoOutage(t *testing.T) {
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprintf("again=%v", again), func(t *testing.T) {
			b := newBench(t, inbox.Config{})
			_, err := b.process(b.do(func(ctx context.Context, tx pgx.Tx) error {
				short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
				defer cancel()
				_, _ = tx.Exec(short, "select pg_sleep(5)")
				_, err := tx.Exec(ctx, "select 1") // on a closed connection
				if again {
					return err
				}
				return nil
			}), message("m1", "x"))
			require.Error(t, err)
			require.NotErrorIs(t, err, consumer.ErrOutage)
			b.requireEffects(0)
		})
	}
}
