package inbox_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/inbox"
)

// Whatever the SQL of one message ends or undoes, it commits no claim of another
// without its effect, and no effect without its claim.
func TestBatchSQLReachesNoOtherMessage(t *testing.T) {
	queued := func(statement string) func(ctx context.Context, tx pgx.Tx) error {
		return func(_ context.Context, tx pgx.Tx) error { return inbox.Queue(tx, statement) }
	}
	swallowed := func(statement string) func(ctx context.Context, tx pgx.Tx) error {
		return func(ctx context.Context, tx pgx.Tx) error {
			_ = sql(statement)(ctx, tx)
			return nil
		}
	}
	for name, c := range map[string]struct {
		mode   pgx.QueryExecMode
		m3, m6 func(ctx context.Context, tx pgx.Tx) error
	}{
		// A carriage return, too, ends a comment.
		"end behind a comment":              {m6: sql("--\rend")},
		"rollback behind a comment":         {m6: sql("--\rrollback and chain")},
		"queued, behind a comment":          {m6: queued("--\rrollback")},
		"queued, in the simple protocol":    {m6: queued("select 1; rollback"), mode: pgx.QueryExecModeSimpleProtocol},
		"queued abort":                      {m6: queued("select 1; abort"), mode: pgx.QueryExecModeSimpleProtocol},
		"to a savepoint of another message": {m3: sql("savepoint s"), m6: swallowed("rollback to savepoint s")},
	} {
		t.Run(name, func(t *testing.T) {
			b := newRunnerBench(t)
			pc := b.Pool.Config()
			if c.mode != 0 {
				pc.ConnConfig.DefaultQueryExecMode = c.mode
			}
			pool, err := pgxpool.NewWithConfig(b.ctx, pc)
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			b.cfg.Inbox, err = inbox.NewWithConfig(pool, inbox.Config{Schema: b.Schema})
			require.NoError(t, err)
			b.cfg.Handler = consumer.HandlerFunc[pgx.Tx](func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
				if err := inbox.Queue(tx, b.SQL("insert into %s.effects values ($1)"), m.ID); err != nil {
					return err
				}
				switch {
				case m.ID == "m3" && c.m3 != nil:
					return c.m3(ctx, tx)
				case m.ID == "m6":
					return c.m6(ctx, tx)
				}
				return nil
			})
			b.cfg.MaxBatch = 10
			b.broker.Publish(numbered(10)...)
			b.start()
			b.publish()
			require.Equal(t, 9, b.Int(t, "select count(*) from %s.effects where id <> 'm6'"))
			require.Equal(t, 9, b.Int(t, "select count(distinct id) from %s.effects where id <> 'm6'"))
			require.Zero(t, b.Int(t, "select count(*) from %s.failed_messages where message_id <> 'm6'"))
		})
	}
}

// Once a hidden rollback has ended the transaction, each statement would commit by
// itself, and again at the next attempt.
func TestNothingIsSentBehindAHiddenRollback(t *testing.T) {
	b := newBench(t, inbox.Config{})
	insert := b.SQL("insert into %s.effects values ('m1')")
	for name, f := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"exec":   sql(insert),
		"queued": func(_ context.Context, tx pgx.Tx) error { return inbox.Queue(tx, insert) },
	} {
		_, err := b.process(b.do(func(ctx context.Context, tx pgx.Tx) error {
			_ = sql("select 1; rollback")(ctx, tx)
			_ = f(ctx, tx)
			return nil
		}), message("m1", "x"))
		require.ErrorIs(t, err, inbox.ErrTransactionEnded, name)
		b.requireEffects(0)
	}
}
