package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
)

func TestOrderPerKey(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.cfg.Workers = 4
		f.cfg.Buffer = 50
		f.cfg.Retry = consumer.Backoff{Min: time.Millisecond, Max: 20 * time.Millisecond}
		f.cfg.Handler = handler(func(_ context.Context, tx *Tx, m *message) error {
			if err := tx.Do(string(m.Body)); err != nil {
				return err
			}
			time.Sleep(rand.N(20 * time.Millisecond))
			if rand.N(5) == 0 {
				return errors.New("now and then")
			}
			return nil
		})
		f.inbox.failWith(func(s stage, _ *message) error { // outages and rivals now and then
			switch {
			case rand.N(50) == 0:
				return consumer.ErrOutage
			case rand.N(10) == 0 && s == atCommit:
				return consumer.ErrContention
			}
			return nil
		})
		sent := map[string][]string{}
		for n := range 40 {
			for _, key := range []string{"a", "b", "c", "d", "e"} {
				id := fmt.Sprintf("%s%d", key, n)
				f.broker.Publish(keyed(key, id))
				sent[key] = append(sent[key], id)
			}
			f.broker.Publish(msg(fmt.Sprintf("free%d", n)))
		}
		f.start()
		f.finish()
		got := map[string][]string{}
		for _, id := range f.inbox.committed() {
			got[id[:1]] = append(got[id[:1]], id)
		}
		for key, want := range sent {
			require.Equal(t, want, got[key], "key %s", key)
		}
		require.Len(t, got["f"], 40)
	})
}

func TestOtherKeysGoOnWhileOneIsRetried(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.cfg.Workers = 2
		f.cfg.Retry = consumer.Backoff{Min: time.Second, Max: time.Second}
		var done atomic.Bool
		f.cfg.Handler = handler(func(_ context.Context, tx *Tx, m *message) error {
			if m.ID == "a1" && !done.Load() {
				return errors.New("not yet")
			}
			return tx.Do(m.ID)
		})
		f.broker.Publish(keyed("a", "a1"), keyed("a", "a2"), keyed("b", "b1"), msg("free"), keyed("a", "a3"), keyed("b", "b2"))
		f.start()
		advance(5 * time.Minute)
		got := f.inbox.committed()
		require.ElementsMatch(t, []string{"b1", "b2", "free"}, got)
		require.Less(t, slices.Index(got, "b1"), slices.Index(got, "b2"))
		require.Equal(t, 3, f.runner.Health().Streams[0].Held)
		done.Store(true)
		f.finish()
		require.Equal(t, []string{"a1", "a2", "a3"}, f.inbox.committed()[3:])
	})
}

// Messages of one key follow each other in one session, too.
func TestSessionGoesOnWithTheKey(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFixture(t)
		f.cfg.Inbox = sessionInbox{f.inbox}
		for n := range 50 {
			f.broker.Publish(keyed("a", fmt.Sprint(n)))
		}
		f.start()
		f.finish()
		require.Len(t, f.inbox.committed(), 50)
		require.LessOrEqual(t, f.inbox.sessions(), 2)
	})
}

// With one worker, a message that waits for its next attempt holds nobody up.
func TestRetryOccupiesNoWorker(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.cfg.Retry = consumer.Backoff{Min: time.Minute, Max: time.Minute}
		f.cfg.Handler = handler(func(ctx context.Context, tx *Tx, m *message) error {
			if m.ID == "m0" && m.Attempt == 1 {
				return errors.New("not yet")
			}
			return effect(ctx, tx, m)
		})
		f.broker.Publish(msgs(20)...)
		f.start()
		require.Len(t, f.inbox.committed(), 19)
		require.Equal(t, 1, f.runner.Health().Streams[0].Retrying)
		f.finish()
		require.Len(t, f.inbox.committed(), 20)
	})
}
