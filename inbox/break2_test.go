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

// A message whose commit ends the connection each time, in place and later.
func TestBreakCommitKills(t *testing.T) {
	for _, later := range []bool{false, true} {
		for _, maxBatch := range []int{1, 20} {
			t.Run("", func(t *testing.T) {
				b := newRunnerBench(t)
				b.MustExec(t, `create function %s.die() returns trigger language plpgsql as
'begin if new.id = ''m5'' then perform pg_terminate_backend(pg_backend_pid()); perform pg_sleep(1); end if; return null; end'`)
				b.MustExec(t, "create constraint trigger die after insert on %s.effects deferrable initially deferred for each row execute function %s.die()")
				b.cfg.Probe = consumer.Backoff{Min: time.Millisecond, Max: 20 * time.Millisecond}
				b.cfg.MaxBatch = maxBatch
				b.cfg.Attempts = 1
				var runs atomic.Int32
				b.handle = func(_ context.Context, _ pgx.Tx, m *consumer.Message) error {
					if m.ID == "m5" {
						runs.Add(1)
						if later && m.Attempt == 1 {
							return errHandler
						}
					}
					return nil
				}
				b.broker.Publish(numbered(40)...)
				stop := b.start()
				defer stop()
				deadline := time.Now().Add(15 * time.Second)
				ok := false
				for n := 0; !ok && time.Now().Before(deadline); n++ {
					if b.Processed(t) >= 39 { // what others commit is what speaks against this one
						b.broker.Publish(message(fmt.Sprint("t", n), "x"))
					}
					time.Sleep(20 * time.Millisecond)
					ok = b.Processed(t) >= 40 && b.Int(t, "select count(*) from %s.failed_messages where next_attempt_at is null") == 1
				}
				t.Logf("later %v batch %d: %d runs, processed %d", later, maxBatch, runs.Load(), b.Processed(t))
				require.True(t, ok, "no end")
				stop()
				b.requireEffectsBut(1)
			})
		}
	}
}

// A slow acknowledgement, while the next message is claimed.
type slowAcks struct {
	consumer.Source
	wait time.Duration
}

func (s slowAcks) Run(ctx context.Context, serve func(context.Context, consumer.Stream) error) error {
	return s.Source.Run(ctx, func(ctx context.Context, st consumer.Stream) error { return serve(ctx, slowStream{st, s.wait}) })
}

type slowStream struct {
	consumer.Stream
	wait time.Duration
}

func (s slowStream) Ack(ctx context.Context, ms ...*consumer.Message) error {
	select {
	case <-time.After(s.wait):
	case <-ctx.Done():
	}
	return s.Stream.Ack(ctx, ms...)
}

func TestBreakSlowAck(t *testing.T) {
	b := newRunnerBench(t)
	cfg := b.Pool.Config()
	cfg.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = "600"
	pool, err := pgxpool.NewWithConfig(b.ctx, cfg)
	require.NoError(t, err)
	defer pool.Close()
	b.cfg.Inbox, err = inbox.NewWithConfig(pool, inbox.Config{Schema: b.Schema})
	require.NoError(t, err)
	b.cfg.HandlerTimeout = 500 * time.Millisecond
	b.cfg.Source = slowAcks{b.broker, 900 * time.Millisecond}
	b.cfg.Attempts, b.cfg.RetryLater = 1, []time.Duration{}
	b.broker.Publish(numbered(5)...)
	stop := b.start()
	b.publish()
	stop()
	require.Zero(t, b.Int(t, "select count(*) from %s.failed_messages"))
	b.requireEffects(5)
}
