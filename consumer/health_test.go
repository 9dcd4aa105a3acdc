package consumer_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/brokers/memory"
	"github.com/ackafter/ackafter/consumer"
)

func TestHealthBeforeRun(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFixture(t)
		r, err := consumer.New(f.cfg)
		require.NoError(t, err)
		h := r.Health()
		require.Equal(t, consumer.Starting, h.State)
		require.Equal(t, time.Now(), h.Since)
		require.False(t, h.OK())
	})
}

func TestHealthOfStreams(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.onStreams(3)
		f.cfg.Retry = consumer.Backoff{Min: time.Hour, Max: time.Hour}
		f.cfg.Handler = handler(func(ctx context.Context, tx *Tx, m *message) error {
			if m.ID == "m0" && m.Attempt == 1 {
				return errors.New("not yet")
			}
			return slow(time.Minute)(ctx, tx, m)
		})
		f.cfg.HandlerTimeout = time.Hour
		f.broker.Publish(msgs(9)...)
		began := time.Now()
		f.start()
		h := f.runner.Health()
		require.True(t, h.OK())
		require.Equal(t, began, h.Since)
		require.Len(t, h.Streams, 3)
		retrying := 0
		for i, s := range h.Streams {
			require.Equal(t, []string{"memory/0", "memory/1", "memory/2"}[i], s.Name, "sorted")
			require.Equal(t, 3, s.Held)
			require.Equal(t, began.UnixNano(), s.Advanced.UnixNano())
			retrying += s.Retrying
		}
		require.Equal(t, 1, retrying)

		advance(90 * time.Second)
		for _, s := range f.runner.Health().Streams {
			require.Equal(t, 2, s.Held)
			require.Equal(t, time.Minute, s.Advanced.Sub(began))
		}
		f.finish()
		require.Empty(t, f.runner.Health().Streams)
	})
}

// reporting is a source that says how it is.
type reporting struct {
	*memory.Broker
	health *error
}

func (s reporting) Health() error { return *s.health }

func TestHealthOfTheSource(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFixture(t)
		var health error
		f.cfg.Source = reporting{f.broker, &health}
		f.start()
		require.True(t, f.runner.Health().OK())

		advance(time.Minute)
		health = errors.New("no route to the broker")
		lost := time.Now()
		h := f.runner.Health()
		require.Equal(t, consumer.Paused, h.State)
		require.Equal(t, "no route to the broker", h.Reason)
		require.Equal(t, lost, h.Since)
		advance(time.Minute)
		require.Equal(t, lost, f.runner.Health().Since)

		health = nil
		h = f.runner.Health()
		require.Equal(t, consumer.Running, h.State)
		require.Empty(t, h.Reason)
		require.Equal(t, time.Now(), h.Since)

		health = errors.New("no route to the broker")
		require.NoError(t, f.end())
		require.Equal(t, consumer.Stopped, f.runner.Health().State, "the source does not matter any more")
	})
}

func TestHealthAsJSON(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	text, err := json.Marshal(consumer.Health{
		State: consumer.Paused, Since: at, Reason: "away",
		Streams: []consumer.StreamHealth{{Name: "s", Held: 2, Retrying: 1, Advanced: at}},
	})
	require.NoError(t, err)
	require.JSONEq(t, `{"state": "paused", "since": "2026-01-02T03:04:05Z", "reason": "away",
		"streams": [{"name": "s", "held": 2, "retrying": 1, "advanced": "2026-01-02T03:04:05Z"}]}`, string(text))
}

func TestHealthNamesTheDatabaseFirst(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFixture(t)
		health := errors.New("no route to the broker")
		f.cfg.Source = reporting{f.broker, &health}
		f.inbox.away(errAway)
		f.broker.Publish(msg("a"))
		f.start()
		require.Equal(t, errAway.Error(), f.runner.Health().Reason)
	})
}
