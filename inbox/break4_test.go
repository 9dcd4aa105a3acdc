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

// begin read only, in a transaction, is a mere warning, and what follows inherits it.
func TestBreakBeginReadOnly(t *testing.T) {
	for _, statement := range []string{"begin read only", "begin isolation level serializable", "begin deferrable", "select set_config('tran'||'saction_read_only', 'on', true)"} {
		t.Run(statement, func(t *testing.T) {
			b := newBench(t, inbox.Config{})
			s := b.session()
			next := message("b", "x")
			_, err := s.Process(b.ctx, []*consumer.Message{message("a", "x")}, func(ctx context.Context, tx pgx.Tx, fresh []*consumer.Message) error {
				if err := b.record(ctx, tx, fresh); err != nil {
					return err
				}
				return sql(statement)(ctx, tx)
			}, then(next))
			t.Log(statement, err)
			_, err = s.Process(b.ctx, []*consumer.Message{next}, b.record, nil)
			t.Log(statement, err)
			_, err = s.Process(b.ctx, []*consumer.Message{next}, b.record, nil)
			t.Log(statement, err)
			require.NoError(t, err)
		})
	}
}

// A row-level policy that hides processed_messages.
func TestBreakPolicies(t *testing.T) {
	b := newBench(t, inbox.Config{})
	b.MustExec(t, "create role %s_worker login")
	t.Cleanup(func() { b.MustExec(t, "drop owned by %s_worker"); b.MustExec(t, "drop role %s_worker") })
	b.MustExec(t, "grant usage on schema %s to %s_worker")
	b.MustExec(t, "grant all on all tables in schema %s to %s_worker")
	b.MustExec(t, "alter table %s.failed_messages enable row level security")
	b.MustExec(t, "create policy i on %s.failed_messages for insert with check (true)")
	b.MustExec(t, "create policy s on %s.failed_messages for select using (true)")
	b.MustExec(t, "create policy u on %s.failed_messages for update using (true)")
	cfg := b.Pool.Config()
	cfg.ConnConfig.User = b.SQL("%s_worker")
	pool, err := pgxpool.NewWithConfig(b.ctx, cfg)
	require.NoError(t, err)
	defer pool.Close()
	in, err := inbox.NewWithConfig(pool, inbox.Config{Schema: b.Schema})
	require.NoError(t, err)
	_, err = in.SetAside(b.ctx, subscriber, failure(message("m1", "x"), 0))
	require.NoError(t, err)
	for range 3 {
		f, err := in.RetryDue(b.ctx, subscriber, func(ctx context.Context, tx pgx.Tx, f consumer.Failure) error {
			return b.record(ctx, tx, []*consumer.Message{f.Message})
		}, again)
		t.Log(f, err)
	}
	require.Zero(t, b.Int(t, "select count(*) from %s.effects"))
}
