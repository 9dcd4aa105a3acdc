package inbox_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/inbox"
)

func (b *runnerBench) consistent(n int) {
	b.t.Helper()
	require.Zero(b.t, b.Int(b.t, "select count(*) from %s.processed_messages p where not exists (select from %s.effects e where e.id = p.message_id) and not exists (select from %s.failed_messages f where f.message_id = p.message_id)"), "claims without effects: LOST")
	require.Zero(b.t, b.Int(b.t, "select count(*) from (select id from %s.effects group by id having count(*) > 1) x"), "DOUBLED")
	_ = n
}

// hostile runs m's extra in a batch of ten among innocent ones.
func hostile(t *testing.T, mode pgx.QueryExecMode, batch bool, evil func(ctx context.Context, tx pgx.Tx, m *consumer.Message, first bool) error) {
	b := newRunnerBench(t)
	if mode != 0 {
		cfg := b.Pool.Config()
		cfg.ConnConfig.DefaultQueryExecMode = mode
		pool, err := pgxpool.NewWithConfig(b.ctx, cfg)
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		b.cfg.Inbox, err = inbox.NewWithConfig(pool, inbox.Config{Schema: b.Schema})
		require.NoError(t, err)
	}
	b.cfg.MaxBatch = 20
	b.cfg.Probe = consumer.Backoff{Min: time.Millisecond, Max: 10 * time.Millisecond}
	var evils atomic.Int32
	b.cfg.Handler = consumer.HandlerFunc[pgx.Tx](func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
		if batch {
			if err := inbox.Queue(tx, b.SQL("insert into %s.effects values ($1)"), m.ID); err != nil {
				return err
			}
		} else if err := b.record(ctx, tx, []*consumer.Message{m}); err != nil {
			return err
		}
		if m.ID == "m5" || m.ID == "m3" {
			return evil(ctx, tx, m, m.ID == "m3")
		}
		_ = evils.Add
		return nil
	})
	b.broker.Publish(numbered(20)...)
	b.start()
	ctx, cancel := context.WithTimeout(b.ctx, 20*time.Second)
	defer cancel()
	require.NoError(t, b.broker.Drained(ctx), "STUCK")
	// innocents
	require.Zero(t, b.Int(t, "select count(*) from %s.failed_messages where message_id not in ('m3', 'm5')"), "innocent aside")
	for _, m := range numbered(20) {
		if m.ID == "m3" || m.ID == "m5" {
			continue
		}
		require.Equal(t, 1, b.Int(t, fmt.Sprintf("select count(*) from %%s.effects where id = '%s'", m.ID)), m.ID)
		require.Equal(t, 1, b.Int(t, fmt.Sprintf("select count(*) from %%s.processed_messages where message_id = '%s'", m.ID)), m.ID)
	}
	t.Log("m5 effects", b.Int(t, "select count(*) from %s.effects where id = 'm5'"), "aside", b.Int(t, "select count(*) from %s.failed_messages"))
}

func only5(f func(ctx context.Context, tx pgx.Tx) error) func(ctx context.Context, tx pgx.Tx, m *consumer.Message, first bool) error {
	return func(ctx context.Context, tx pgx.Tx, _ *consumer.Message, first bool) error {
		if first {
			return nil
		}
		return f(ctx, tx)
	}
}

func TestHostile(t *testing.T) {
	queue := func(s string) func(ctx context.Context, tx pgx.Tx) error {
		return func(_ context.Context, tx pgx.Tx) error { return inbox.Queue(tx, s) }
	}
	swallow := func(ctx context.Context, tx pgx.Tx) error {
		short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
		_, _ = tx.Exec(short, "select pg_sleep(5)")
		return nil
	}
	for _, c := range []struct {
		name  string
		mode  pgx.QueryExecMode
		batch bool
		evil  func(ctx context.Context, tx pgx.Tx, m *consumer.Message, first bool) error
	}{
		{"CR comment end", 0, false, only5(sql("--\rend"))},
		{"CR comment rollback", 0, false, only5(sql("--\rrollback"))},
		{"CR comment rollback and chain", 0, false, only5(sql("--\rrollback and chain"))},
		{"CR comment queued rollback", 0, true, only5(queue("--\rrollback"))},
		{"CR comment queued end", 0, true, only5(queue("--\rend"))},
		{"simple queued rollback", pgx.QueryExecModeSimpleProtocol, true, only5(queue("select 1; rollback"))},
		{"simple queued abort", pgx.QueryExecModeSimpleProtocol, true, only5(queue("select 1; abort"))},
		{"simple queued rollback begin", pgx.QueryExecModeSimpleProtocol, true, only5(queue("select 1; rollback; begin"))},
		{"hidden rollback, then insert", 0, false, only5(sql("select 1; rollback"))},
		{"savepoint of another", 0, false, func(ctx context.Context, tx pgx.Tx, m *consumer.Message, first bool) error {
			if first {
				return sql("savepoint s")(ctx, tx)
			}
			_ = sql("rollback to savepoint s")(ctx, tx)
			return nil
		}},
		{"short ctx swallowed", 0, false, only5(swallow)},
		{"short ctx swallowed, then used", 0, false, only5(func(ctx context.Context, tx pgx.Tx) error {
			_ = swallow(ctx, tx)
			return sql("select 1")(ctx, tx)
		})},
		{"short ctx swallowed, queue", 0, true, only5(swallow)},
		{"short ctx swallowed, then queued", 0, true, only5(func(ctx context.Context, tx pgx.Tx) error {
			_ = swallow(ctx, tx)
			return inbox.Queue(tx, "select 1")
		})},
		{"batch callback", 0, false, only5(func(ctx context.Context, tx pgx.Tx) error {
			var batch pgx.Batch
			var conn *pgx.Conn
			batch.Queue("select 1").Query(func(rows pgx.Rows) error {
				conn = rows.Conn()
				return nil
			})
			if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
				return err
			}
			_, err := conn.Exec(ctx, "commit and chain")
			return err
		})},
	} {
		t.Run(c.name, func(t *testing.T) { hostile(t, c.mode, c.batch, c.evil) })
	}
}
