package consumer_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
)

// slow is a handler that takes d, unless its context ends.
func slow(d time.Duration) handler {
	return func(ctx context.Context, tx *Tx, m *message) error {
		if err := effect(ctx, tx, m); err != nil {
			return err
		}
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func TestDrainFinishesWhatHasBegun(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.cfg.Workers = 2
		f.cfg.Handler = slow(10 * time.Second)
		f.broker.Publish(msgs(5)...)
		f.start()
		advance(time.Second)
		began := time.Now()
		f.stop()
		synctest.Wait()
		require.Equal(t, consumer.Draining, f.runner.Health().State)
		require.False(t, f.runner.Health().OK())
		require.NoError(t, f.wait())
		require.Equal(t, 9*time.Second, time.Since(began))
		require.Equal(t, consumer.Stopped, f.runner.Health().State)
		require.Empty(t, f.runner.Health().Streams)
		require.ElementsMatch(t, []string{"m0", "m1"}, f.inbox.committed())
		require.Equal(t, []string{"m2", "m3", "m4"}, f.unacknowledged(), "what was not begun is handed back")
	})
}

// generous is a stream that takes messages back.
type generous struct {
	consumer.Stream
	released *list[[]string]
}

func (s generous) Release(ctx context.Context, ms ...*message) error {
	s.released.add(ids(ms))
	return errors.New("the connection is lost") // which needs no action
}

// What nobody has begun goes back as soon as the runner stops, but nothing that
// could overtake its key.
func TestDrainReleasesAtOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		var released list[[]string]
		f.cfg.Source = altered{Source: f.broker, alter: func(s consumer.Stream) consumer.Stream {
			return generous{s, &released}
		}}
		f.cfg.Workers = 2
		f.cfg.Retry = consumer.Backoff{Min: time.Hour, Max: time.Hour}
		f.cfg.Handler = handler(func(ctx context.Context, tx *Tx, m *message) error {
			if m.ID == "m0" {
				return errors.New("not yet")
			}
			return slow(10*time.Second)(ctx, tx, m)
		})
		f.broker.Publish(msg("m0"), keyed("a", "a1"), keyed("b", "b1"), keyed("a", "a2"), keyed("c", "c1"), msg("m1"), msg("m2"))
		f.start()
		advance(time.Second)
		f.stop()
		synctest.Wait()
		require.Len(t, released.all(), 1, "while handlers go on")
		require.ElementsMatch(t, []string{"m0", "m1", "m2"}, released.all()[0])
		require.NoError(t, f.wait())
		require.Len(t, released.all(), 1)
		require.ElementsMatch(t, []string{"a1", "b1"}, f.inbox.committed())
		require.Equal(t, []string{"INFO consumer started", "WARN attempt failed", "INFO consumer stopped"}, f.log.loud())
	})
}

func TestDrainDropsRetriesAtOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.cfg.Retry = consumer.Backoff{Min: time.Hour, Max: time.Hour}
		f.failing(2, func() error { return errors.New("not yet") })
		f.broker.Publish(msg("a"))
		f.start()
		require.Equal(t, 1, f.runner.Health().Streams[0].Retrying)
		began := time.Now()
		require.NoError(t, f.end())
		require.Equal(t, began, time.Now())
		require.Equal(t, []string{"a"}, f.unacknowledged())
		require.Empty(t, f.inbox.committed())
	})
}

// A failure during the drain is not tried again.
func TestDrainDoesNotRetry(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		var made list[string]
		f.cfg.Handler = handler(func(_ context.Context, _ *Tx, m *message) error {
			made.add(m.ID)
			time.Sleep(time.Second)
			return consumer.RetryAfter(0, errors.New("not yet"))
		})
		f.broker.Publish(msgs(3)...)
		f.start()
		require.NoError(t, f.end())
		require.Equal(t, []string{"m0"}, made.all())
		require.Len(t, f.unacknowledged(), 3)
	})
}

func TestDrainCutsHandlersShort(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.cfg.DrainTimeout = 3 * time.Second
		var causes list[error]
		f.cfg.Handler = handler(func(ctx context.Context, tx *Tx, m *message) error {
			err := slow(time.Hour)(ctx, tx, m)
			causes.add(err)
			return nil // whatever it says
		})
		f.cfg.HandlerTimeout = 2 * time.Hour
		f.broker.Publish(msg("a"))
		f.start()
		advance(time.Minute)
		began := time.Now()
		require.NoError(t, f.end())
		require.Equal(t, 3*time.Second, time.Since(began))
		require.ErrorIs(t, causes.all()[0], consumer.ErrDrainTimeout)
		require.Empty(t, f.inbox.committed(), "no trace")
		require.Empty(t, f.log.with("attempt failed"), "no attempt")
		require.Equal(t, []string{"a"}, f.unacknowledged())
	})
}

// A commit that has begun is waited for beyond DrainTimeout, and acknowledged.
func TestDrainWaitsForCommits(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.cfg.DrainTimeout = time.Second
		f.cfg.AbandonTimeout = 10 * time.Second
		f.inbox.failWith(func(s stage, _ *message) error {
			if s == atCommit {
				time.Sleep(5 * time.Second)
			}
			return nil
		})
		f.broker.Publish(msg("a"))
		f.start()
		began := time.Now()
		require.NoError(t, f.end())
		require.Equal(t, 5*time.Second, time.Since(began))
		require.Equal(t, []string{"a"}, f.inbox.committed())
		require.Empty(t, f.unacknowledged())
	})
}

// Nor does a session go on with what it has looked ahead for.
func TestDrainEndsSessions(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.inbox.failWith(func(s stage, _ *message) error {
			if s == atCommit {
				time.Sleep(time.Second)
			}
			return nil
		})
		f.broker.Publish(msgs(3)...)
		f.start()
		require.NoError(t, f.end())
		require.Equal(t, []string{"m0"}, f.inbox.committed())
		require.Equal(t, []string{"m1", "m2"}, f.unacknowledged())
	})
}

func TestHandlerThatIgnoresItsContextIsAbandoned(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.cfg.DrainTimeout = 3 * time.Second
		f.cfg.AbandonTimeout = 2 * time.Second
		release := make(chan struct{})
		f.cfg.Handler = handler(func(ctx context.Context, tx *Tx, m *message) error {
			<-release
			return tx.Do(m.ID)
		})
		f.broker.Publish(msg("a"))
		f.start()
		began := time.Now()
		f.stop()
		err := f.wait()
		require.ErrorContains(t, err, "Config.AbandonTimeout")
		require.ErrorContains(t, err, "memory/0")
		require.Equal(t, 5*time.Second, time.Since(began))
		require.Equal(t, []string{"a"}, f.unacknowledged())

		close(release)
		synctest.Wait()
		require.Empty(t, f.inbox.committed(), "too late")
		require.Equal(t, []string{"a"}, f.unacknowledged())
	})
}

func TestDrainDefaults(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		release := make(chan struct{})
		defer close(release)
		f.cfg.HandlerTimeout = time.Hour
		f.cfg.Handler = handler(func(context.Context, *Tx, *message) error { <-release; return nil })
		f.broker.Publish(msg("a"))
		f.start()
		began := time.Now()
		require.Error(t, f.end())
		require.Equal(t, 25*time.Second, time.Since(began))
	})
}
