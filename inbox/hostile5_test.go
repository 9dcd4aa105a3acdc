package inbox_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/failures"
)

// HandleBatch promises the order of delivery.
func TestHostileBatchOrder(t *testing.T) {
	b := newRunnerBench(t)
	b.cfg.MaxBatch, b.cfg.Workers = 10, 1
	b.cfg.Handler = nil
	var once sync.Once
	var bad atomic.Int32
	b.cfg.Batch = consumer.BatchHandlerFunc[pgx.Tx](func(ctx context.Context, tx pgx.Tx, ms []*consumer.Message) error {
		last := -1
		for _, m := range ms {
			var i int
			_, _ = fmt.Sscan(m.ID[1:], &i)
			if i < last {
				bad.Add(1)
				t.Log("after", last, "comes", i)
			}
			last = i
		}
		fail := false
		once.Do(func() { fail = true })
		if fail {
			return consumer.Blame(ms[len(ms)-1], errHandler)
		}
		return b.record(ctx, tx, ms)
	})
	b.broker.Publish(numbered(100)...)
	b.start()
	b.publish()
	b.requireEffects(100)
	require.Zero(t, bad.Load())
}

// With KeepOrder, what was set aside for its own reason runs in the order of its key.
func TestHostileKeepOrderRetryAll(t *testing.T) {
	b := newRunnerBench(t)
	b.cfg.KeepOrder = true
	b.cfg.Horizon = time.Hour
	b.cfg.Workers, b.cfg.RetryPoll = 4, 20*time.Millisecond
	b.cfg.RetryLater = []time.Duration{300 * time.Millisecond, 300 * time.Millisecond, 300 * time.Millisecond}
	var mu sync.Mutex
	var order []string
	failed := false
	b.handle = func(_ context.Context, _ pgx.Tx, m *consumer.Message) error {
		mu.Lock()
		defer mu.Unlock()
		if m.ID == "a0" && !failed {
			failed = true
			return errHandler
		}
		order = append(order, m.ID)
		return nil
	}
	b.start()
	for i := range 6 {
		b.broker.Publish(&consumer.Message{ID: fmt.Sprint("a", i), Key: []byte("a"), Body: []byte("x"), Time: time.Now().Add(-2 * time.Hour)})
	}
	b.publish()
	b.requireAside(6)
	store, err := failures.New(b.Pool, failures.Config{Schema: b.Schema})
	require.NoError(t, err)
	_, err = store.RetryAll(b.ctx, failures.Filter{}, failures.RetryOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return b.Int(t, "select count(*) from %s.failed_messages") == 0 }, 10*time.Second, 10*time.Millisecond)
	require.Equal(t, []string{"a0", "a1", "a2", "a3", "a4", "a5"}, order)
}
