package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
)

func TestOneEffectPerMessage(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.onStreams(4)
		f.cfg.Workers = 3
		all := msgs(60)
		thrice := slices.Repeat(all, 3)
		rand.Shuffle(len(thrice), func(i, j int) { thrice[i], thrice[j] = thrice[j], thrice[i] })
		f.cfg.Handler = handler(func(ctx context.Context, tx *Tx, m *message) error {
			if err := tx.Do(m.ID); err != nil {
				return err
			}
			time.Sleep(rand.N(10 * time.Millisecond))
			if m.Attempt == 1 && rand.N(4) == 0 {
				return errors.New("now and then")
			}
			return nil
		})
		f.broker.Publish(thrice...)
		f.start()
		f.finish()
		require.ElementsMatch(t, ids(all), f.inbox.committed())
	})
}

func TestDuplicateIsAcknowledgedWithoutTheHandler(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		calls := 0
		f.cfg.Handler = handler(func(context.Context, *Tx, *message) error { calls++; return nil })
		f.broker.Publish(msg("a"), msg("a"), msg("a"))
		f.start()
		f.finish()
		require.Equal(t, 1, calls)
	})
}

func TestSubscribersDoNotShareIDs(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.broker.Publish(msg("a"))
		f.start()
		f.finish()
		f.cfg.Subscriber = "shipping"
		f.broker.Publish(msg("a"))
		f.start()
		f.finish()
		require.Equal(t, []string{"a", "a"}, f.inbox.committed())
	})
}

// The reply to a commit is lost: whether or not it took effect, the message is
// not acknowledged until a second look has told, and is no failed attempt.
func TestCommitOfUnknownOutcome(t *testing.T) {
	for _, lost := range []stage{atCommit, atReply} {
		t.Run(string(lost), func(t *testing.T) {
			onBoth(t, func(t *testing.T, f *fixture) {
				var attempts []int
				f.cfg.Handler = handler(func(_ context.Context, tx *Tx, m *message) error {
					attempts = append(attempts, m.Attempt)
					return tx.Do(m.ID)
				})
				f.cfg.Probe = consumer.Backoff{Min: time.Minute, Max: time.Minute}
				failed := false
				f.inbox.failWith(func(s stage, _ *message) error {
					if s != lost || failed {
						return nil
					}
					failed = true
					return fmt.Errorf("%w: %w", consumer.ErrOutage, consumer.ErrOutcomeUnknown)
				})
				f.broker.Publish(msg("a"))
				f.start()
				synctest.Wait()
				require.True(t, failed)
				require.Equal(t, 1, f.runner.Health().Streams[0].Held, "acknowledged although nobody knew")
				require.Equal(t, consumer.Paused, f.runner.Health().State)
				f.finish()
				require.Equal(t, []string{"a"}, f.inbox.committed())
				for _, attempt := range attempts {
					require.Equal(t, 1, attempt)
				}
				require.Len(t, attempts, map[stage]int{atCommit: 2, atReply: 1}[lost])
			})
		})
	}
}
