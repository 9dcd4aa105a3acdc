package consumer_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
)

// gauge counts what goes on at once.
type gauge struct{ now, most atomic.Int64 }

func (g *gauge) enter() {
	now := g.now.Add(1)
	for most := g.most.Load(); now > most && !g.most.CompareAndSwap(most, now); {
		most = g.most.Load()
	}
}

func (g *gauge) leave() { g.now.Add(-1) }

// counted makes each handler take a second, and counts those at once.
func (f *fixture) counted() *gauge {
	var g gauge
	f.cfg.Handler = handler(func(ctx context.Context, tx *Tx, m *message) error {
		g.enter()
		defer g.leave()
		return slow(time.Second)(ctx, tx, m)
	})
	return &g
}

func TestWorkersLimitHandlersOfAStream(t *testing.T) {
	for _, workers := range []int{0, 1, 5} {
		t.Run(fmt.Sprint(workers), func(t *testing.T) {
			onBoth(t, func(t *testing.T, f *fixture) {
				f.cfg.Workers = workers
				g := f.counted()
				f.broker.Publish(msgs(20)...)
				f.start()
				f.finish()
				require.EqualValues(t, max(workers, 1), g.most.Load())
			})
		})
	}
}

func TestMaxTransactionsLimitsAllStreams(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.onStreams(8)
		f.cfg.Workers = 2
		f.cfg.MaxTransactions = 3
		g := f.counted()
		f.broker.Publish(msgs(100)...)
		f.start()
		f.finish()
		require.EqualValues(t, 3, g.most.Load())
		require.Equal(t, 3, f.inbox.mostConnections())
	})
}

func TestInboxLimitsTransactions(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFixture(t)
		f.onStreams(8)
		f.cfg.Inbox = &limited{memInbox: f.inbox, limit: 2}
		f.broker.Publish(msgs(50)...)
		g := f.counted()
		f.start()
		f.finish()
		require.EqualValues(t, 2, g.most.Load())
	})
}

func TestNoLimitOfTransactions(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.onStreams(8)
		f.cfg.Workers = 2
		g := f.counted()
		f.broker.Publish(msgs(64)...)
		f.start()
		f.finish()
		require.EqualValues(t, 16, g.most.Load())
	})
}

// With far more streams than transactions, all advance alike.
func TestFairness(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		const streams, each = 200, 20
		f.onStreams(streams)
		f.cfg.MaxTransactions = 4
		f.cfg.Handler = slow(10 * time.Millisecond)
		f.broker.Publish(msgs(streams * each)...) // without a key: spread evenly
		f.start()
		advance(5 * time.Second) // half of what all take together
		h := f.runner.Health()
		require.Len(t, h.Streams, streams)
		for _, s := range h.Streams {
			require.Less(t, s.Held, each-4, "%s has hardly advanced", s.Name)
			require.Greater(t, s.Held, 4, "%s is far ahead", s.Name)
		}
		f.finish()
		require.Len(t, f.inbox.committed(), streams*each)
	})
}

// stingy is a source whose streams count what they were asked for.
type stingy struct {
	consumer.Source
	delivered *atomic.Int64
}

type stingyStream struct {
	consumer.Stream
	delivered *atomic.Int64
}

func (s stingy) Run(ctx context.Context, serve func(context.Context, consumer.Stream) error) error {
	return s.Source.Run(ctx, func(ctx context.Context, stream consumer.Stream) error {
		return serve(ctx, stingyStream{stream, s.delivered})
	})
}

func (s stingyStream) Next(ctx context.Context, limit int) ([]*message, error) {
	ms, err := s.Stream.Next(ctx, limit)
	s.delivered.Add(int64(len(ms)))
	return ms, err
}

func TestBufferLimitsWhatIsHeld(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		var delivered atomic.Int64
		f.cfg.Source = stingy{f.broker, &delivered}
		f.cfg.Workers = 2
		f.cfg.Buffer = 5
		f.counted()
		f.broker.Publish(keyed("a", "k0"), keyed("a", "k1"), keyed("a", "k2"), keyed("a", "k3"))
		f.broker.Publish(msgs(30)...)
		f.start()
		for done := 0; done <= 34-5; done = len(f.inbox.committed()) {
			held := f.runner.Health().Streams[0].Held
			require.LessOrEqual(t, held, 5)
			require.Greater(t, held, 2, "half of the buffer free is worth a fetch")
			require.EqualValues(t, done+held, delivered.Load())
			advance(time.Second)
			require.Greater(t, len(f.inbox.committed()), done)
		}
		f.finish()
		require.Len(t, f.inbox.committed(), 34)
	})
}

func TestBufferDefaultsTo256(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.counted()
		f.broker.Publish(msgs(300)...)
		f.start()
		require.Equal(t, 256, f.runner.Health().Streams[0].Held)
	})
}
