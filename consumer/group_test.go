package consumer_test

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
)

type runnable func(ctx context.Context) error

func (f runnable) Run(ctx context.Context) error { return f(ctx) }

func TestRunAllEndsWithItsContext(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		one, two := newFixture(t), newFixture(t)
		one.broker.Publish(msg("a"))
		two.broker.Publish(msg("b"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r1, err := consumer.New(one.cfg)
		require.NoError(t, err)
		r2, err := consumer.New(two.cfg)
		require.NoError(t, err)
		began := time.Now()
		require.NoError(t, consumer.RunAll(ctx, r1, r2))
		require.Equal(t, time.Minute, time.Since(began))
		require.Equal(t, []string{"a"}, one.inbox.committed())
		require.Equal(t, []string{"b"}, two.inbox.committed())
	})
}

// When one runner fails the others drain.
func TestRunAllStopsWhenOneFails(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		bad, good := newFixture(t), newFixture(t)
		bad.cfg.Handler = handler(func(context.Context, *Tx, *message) error {
			time.Sleep(time.Second)
			return consumer.Permanent(io.EOF)
		})
		good.cfg.Handler = slow(3 * time.Second)
		bad.broker.Publish(msg("a"))
		good.broker.Publish(msg("b"), msg("c"))
		r1, err := consumer.New(bad.cfg)
		require.NoError(t, err)
		r2, err := consumer.New(good.cfg)
		require.NoError(t, err)
		began := time.Now()
		err = consumer.RunAll(t.Context(), r1, r2)
		require.ErrorIs(t, err, io.EOF)
		require.Equal(t, 3*time.Second, time.Since(began))
		require.Equal(t, []string{"b"}, good.inbox.committed())
		require.Equal(t, []string{"c"}, good.unacknowledged())
	})
}

func TestRunAllJoinsErrors(t *testing.T) {
	t.Parallel()
	err := consumer.RunAll(t.Context(),
		runnable(func(context.Context) error { return io.EOF }),
		runnable(func(ctx context.Context) error { <-ctx.Done(); return io.ErrClosedPipe }),
		runnable(func(context.Context) error { return nil }),
	)
	require.ErrorIs(t, err, io.EOF)
	require.ErrorIs(t, err, io.ErrClosedPipe)
	require.NoError(t, consumer.RunAll(t.Context()))
}
