package inbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/brokers/memory"
	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/inbox"
)

// runnerBench is a runner on a memory broker of its own. The handler has an
// effect and then runs handle.
type runnerBench struct {
	*bench
	broker *memory.Broker
	cfg    consumer.Config[pgx.Tx]
	handle func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error
}

func newRunnerBench(t *testing.T) *runnerBench {
	b := &runnerBench{bench: newBench(t, inbox.Config{}), broker: memory.New()}
	b.cfg = consumer.Config[pgx.Tx]{
		Subscriber: subscriber,
		Source:     b.broker,
		Inbox:      b.Inbox,
		Handler: consumer.HandlerFunc[pgx.Tx](func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
			if err := b.record(ctx, tx, []*consumer.Message{m}); err != nil {
				return err
			}
			if b.handle == nil {
				return nil
			}
			return b.handle(ctx, tx, m)
		}),
		Retry:      consumer.Backoff{Min: time.Millisecond, Max: 10 * time.Millisecond},
		RetryLater: []time.Duration{time.Millisecond, time.Millisecond},
		RetryPoll:  10 * time.Millisecond,
		Logger:     slog.New(slog.DiscardHandler),
	}
	return b
}

// start runs the runner until the test ends or stop is called.
func (b *runnerBench) start() (stop func()) {
	b.t.Helper()
	runner, err := consumer.New(b.cfg)
	require.NoError(b.t, err)
	return b.run(runner)
}

func (b *runnerBench) run(runner *consumer.Runner[pgx.Tx]) (stop func()) {
	ctx, cancel := context.WithCancel(b.ctx)
	done := make(chan error, 1)
	go func() { done <- runner.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(b.t, <-done)
	})
	b.t.Cleanup(stop)
	return stop
}

// publish publishes ms and waits until all is acknowledged.
func (b *runnerBench) publish(ms ...*consumer.Message) {
	b.t.Helper()
	b.broker.Publish(ms...)
	require.NoError(b.t, b.broker.Drained(b.ctx))
}

func (b *runnerBench) reason(id string) (reason string) {
	b.t.Helper()
	require.NoError(b.t, b.Pool.QueryRow(b.ctx, b.SQL("select reason from %s.failed_messages where message_id = $1"), id).Scan(&reason))
	return reason
}

func TestLate(t *testing.T) {
	b := newRunnerBench(t)
	b.cfg.Horizon = time.Hour
	b.start()
	old := func(id string) *consumer.Message {
		return &consumer.Message{ID: id, Body: []byte("x"), Time: time.Now().Add(-2 * time.Hour)}
	}
	b.MustExec(t, "insert into %s.processed_messages (subscriber_id, message_id) values ('billing', 'seen')")
	b.publish(old("late"), old("seen"), &consumer.Message{ID: "timeless", Body: []byte("x")},
		&consumer.Message{ID: "young", Body: []byte("x"), Time: time.Now().Add(-time.Minute)})
	b.requireChanges(2)
	b.requireAside(1)
	require.Equal(t, "late", b.reason("late"))
	require.Zero(t, b.Int(t, "select attempts from %s.failed_messages"))

	// An operator has looked, and lets it run.
	b.MustExec(t, "update %s.failed_messages set next_attempt_at = now()")
	require.Eventually(t, func() bool { return b.Int(t, "select count(*) from %s.failed_messages") == 0 }, 10*time.Second, 10*time.Millisecond)
	b.requireChanges(3)
}

// What is too large is kept whole, unattempted, and runs when an operator says so.
func TestTooLarge(t *testing.T) {
	b := newRunnerBench(t)
	b.cfg.MaxBody = 1 << 20
	b.start()
	b.publish(&consumer.Message{ID: "large", Body: make([]byte, 3<<20)}, &consumer.Message{ID: "small", Body: make([]byte, 1<<20)})
	b.requireChanges(1)
	b.requireAside(1)
	require.Equal(t, "too_large", b.reason("large"))
	require.Equal(t, 3<<20, b.Int(t, "select octet_length(body) from %s.failed_messages"))
	require.Zero(t, b.Int(t, "select attempts from %s.failed_messages"))
	b.MustExec(t, "update %s.failed_messages set next_attempt_at = now()")
	require.Eventually(t, func() bool { return b.Int(t, "select count(*) from %s.failed_messages") == 0 }, 10*time.Second, 10*time.Millisecond)
	b.requireChanges(2)
}

// A message that was delivered before is noted while it is handled, which must
// not need a second connection.
func TestCrashLoopNotesOnTheOnlyConnection(t *testing.T) {
	b := newRunnerBench(t)
	cfg := b.Pool.Config()
	cfg.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(b.ctx, cfg)
	require.NoError(t, err)
	defer pool.Close()
	b.cfg.Inbox, err = inbox.NewWithConfig(pool, inbox.Config{Schema: b.Schema, ClaimTimeout: 6 * time.Second})
	require.NoError(t, err)
	failed := false
	b.handle = func(_ context.Context, _ pgx.Tx, m *consumer.Message) error {
		if m.ID == "m5" && !failed {
			failed = true
			return errHandler
		}
		return nil
	}
	b.cfg.Attempts = 1
	b.cfg.Source = suspicious{b.broker, func(m *consumer.Message) bool { return m.Body[0]%2 == 1 }}
	stop := b.start()
	began := time.Now()
	for i := range 10 {
		b.broker.Publish(&consumer.Message{ID: fmt.Sprint("m", i), Body: []byte{byte(i)}})
	}
	b.publish()
	require.Eventually(t, func() bool { return b.Int(t, "select count(*) from %s.failed_messages") == 0 }, 30*time.Second, 10*time.Millisecond)
	stop()
	require.Less(t, time.Since(began), 5*time.Second, "somebody has waited for a connection")
	b.requireChanges(10)
	require.Zero(t, b.Int(t, "select count(*) from %s.begun_attempts"))
}

// What may have been delivered before is noted and handled in batches, but for
// what was in a handler when another process ended: that goes alone.
func TestCrashLoopInBatches(t *testing.T) {
	b := newRunnerBench(t)
	b.cfg.MaxBatch = 50
	b.cfg.CrashLimit = 2
	for _, crash := range []struct {
		id     string
		runner string
	}{{"m7", "one"}, {"m9", "one"}, {"m9", "two"}} {
		_, err := b.BeginAttempts(b.ctx, subscriber, []string{crash.id}, crash.runner, true)
		require.NoError(t, err)
	}
	b.cfg.Source = suspicious{b.broker, func(*consumer.Message) bool { return true }}
	b.broker.Publish(numbered(200)...)
	b.start()
	b.publish()
	b.requireChanges(199)
	b.requireAside(1)
	require.Equal(t, "crash", b.reason("m9"))
	require.Less(t, b.Int(t, "select count(distinct xmin::text) from %s.effects"), 20, "transactions")
	require.Equal(t, 1, b.Int(t, "select count(*) from %s.effects where xmin = (select xmin from %s.effects where id = 'm7')"))
	require.Zero(t, b.Int(t, "select count(*) from %s.begun_attempts"))
}

// suspicious is a broker that marks messages as delivered before.
type suspicious struct {
	*memory.Broker
	marks func(*consumer.Message) bool
}

// Run implements consumer.Source.
func (s suspicious) Run(ctx context.Context, serve func(context.Context, consumer.Stream) error) error {
	return s.Broker.Run(ctx, func(ctx context.Context, stream consumer.Stream) error {
		return serve(ctx, suspiciousStream{stream, s.marks})
	})
}

type suspiciousStream struct {
	consumer.Stream
	marks func(*consumer.Message) bool
}

// Next implements consumer.Stream.
func (s suspiciousStream) Next(ctx context.Context, limit int) ([]*consumer.Message, error) {
	ms, err := s.Stream.Next(ctx, limit)
	for _, m := range ms {
		m.Redelivered = s.marks(m)
	}
	return ms, err
}

// A message that was in a handler when a process ended runs with no other beside
// it, so that another crash shows whose it is.
func TestCrashLoopSuspectRunsAlone(t *testing.T) {
	b := newRunnerBench(t)
	_, err := b.BeginAttempts(b.ctx, subscriber, []string{"m20"}, "another", true)
	require.NoError(t, err)
	b.cfg.Workers, b.cfg.MaxTransactions = 3, 3
	b.cfg.Source = suspicious{b.broker, func(m *consumer.Message) bool { return string(m.Body) == "20" }}
	var alone atomic.Bool
	var others, beside atomic.Int32
	b.handle = func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
		if m.ID != "m20" {
			if others.Add(1); alone.Load() {
				beside.Add(1)
			}
			defer others.Add(-1)
			return sql("select pg_sleep(0.001)")(ctx, tx)
		}
		beside.Add(others.Load())
		alone.Store(true)
		defer alone.Store(false)
		return sql("select pg_sleep(0.2)")(ctx, tx)
	}
	b.broker.Publish(numbered(200)...)
	b.start()
	b.publish()
	b.requireChanges(200)
	require.Zero(t, beside.Load(), "handlers beside it")
}
