package consumer_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
)

// sized makes the inbox of f count the transactions that were committed, by
// how many effects they had.
func (f *fixture) sized() *list[int] {
	sizes := &list[int]{}
	f.cfg.Inbox = sizedInbox{f.inbox, sizes}
	return sizes
}

type sizedInbox struct {
	*memInbox
	sizes *list[int]
}

func (in sizedInbox) Process(ctx context.Context, subscriber string, ms []*message,
	apply func(context.Context, *Tx, []*message) error) ([]consumer.Verdict, error) {
	n := 0
	verdicts, err := in.memInbox.Process(ctx, subscriber, ms, func(ctx context.Context, tx *Tx, fresh []*message) error {
		n = len(fresh)
		return apply(ctx, tx, fresh)
	})
	if err == nil {
		in.sizes.add(n)
	}
	return verdicts, err
}

// What is there goes together, and nothing waits for more.
func TestBatchTakesWhatIsThere(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFixture(t)
		sizes := f.sized()
		f.cfg.MaxBatch = 10
		f.broker.Publish(msgs(25)...)
		f.start()
		require.Len(t, f.inbox.committed(), 25)
		require.LessOrEqual(t, len(sizes.all()), 5, "%v", sizes.all())
		require.Equal(t, 10, slices.Max(sizes.all()))

		began := time.Now()
		f.broker.Publish(msg("single"))
		synctest.Wait()
		require.Contains(t, f.inbox.committed(), "single")
		require.Equal(t, began, time.Now(), "it has waited for others")
		f.finish()
	})
}

// Whatever fails in batches ends as it does with one message at a time: the same
// attempts, the same that are set aside, and the rest is processed.
func TestBatchFailsAsSingleMessagesDo(t *testing.T) {
	for _, blamed := range []bool{true, false} {
		t.Run(fmt.Sprintf("blamed=%v", blamed), func(t *testing.T) {
			onBoth(t, func(t *testing.T, f *fixture) {
				f.cfg.MaxBatch = 10
				f.cfg.Workers = 2
				attempts := map[string][]int{}
				var mu sync.Mutex
				handle := func(tx *Tx, m *message, alone bool) error {
					mu.Lock()
					defer mu.Unlock()
					switch m.ID {
					case "m7", "m8", "m21":
						if alone {
							attempts[m.ID] = append(attempts[m.ID], m.Attempt)
						}
						if m.ID != "m8" || m.Attempt == 1 {
							return errors.New("not " + m.ID)
						}
					case "m30":
						return consumer.Permanent(errors.New("never"))
					}
					return tx.Do(m.ID)
				}
				f.cfg.Handler = nil
				f.cfg.RetryLater = []time.Duration{}
				f.cfg.Batch = consumer.BatchHandlerFunc[*Tx](func(_ context.Context, tx *Tx, ms []*message) error {
					for _, m := range ms {
						if err := handle(tx, m, len(ms) == 1); err != nil && blamed {
							return consumer.Blame(m, err)
						} else if err != nil {
							return err
						}
					}
					return nil
				})
				in := &asideInbox{memInbox: f.inbox}
				f.cfg.Inbox = in
				f.broker.Publish(msgs(40)...)
				f.start()
				f.finish()
				require.Len(t, f.inbox.committed(), 37)
				require.Equal(t, map[string][]int{"m7": {1, 2, 3}, "m8": {1, 2}, "m21": {1, 2, 3}}, attempts)
				var aside []string
				for _, a := range in.setAside() {
					aside = append(aside, fmt.Sprintln(a.Message.ID, a.Reason, a.Attempts))
				}
				require.ElementsMatch(t, []string{"m7 failed 3\n", "m21 failed 3\n", "m30 permanent 1\n"}, aside)
			})
		})
	}
}

func TestBatchKeepsTheOrderOfKeys(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.cfg.Workers = 3
		f.cfg.MaxBatch = 16
		f.cfg.Buffer = 64
		f.cfg.Retry = consumer.Backoff{Min: time.Millisecond, Max: 20 * time.Millisecond}
		f.cfg.Handler = handler(func(_ context.Context, tx *Tx, m *message) error {
			time.Sleep(rand.N(5 * time.Millisecond))
			if rand.N(30) == 0 {
				return errors.New("now and then")
			}
			return tx.Do(m.ID)
		})
		f.inbox.failWith(func(s stage, _ *message) error {
			switch {
			case rand.N(50) == 0:
				return consumer.ErrOutage
			case rand.N(10) == 0 && s == atCommit:
				return consumer.ErrContention
			}
			return nil
		})
		sent := map[string][]string{}
		for n := range 60 {
			for _, key := range []string{"a", "b", "c", "d"} {
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
		require.Len(t, got["f"], 60)
	})
}

// The messages of one key go together, in order: with few keys batches would be
// small otherwise.
func TestBatchHoldsManyOfOneKey(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFixture(t)
		sizes := f.sized()
		f.cfg.MaxBatch = 50
		var want []string
		for n := range 50 {
			for _, key := range []string{"a", "b"} {
				id := fmt.Sprintf("%s%d", key, n)
				f.broker.Publish(keyed(key, id))
				want = append(want, id)
			}
		}
		f.start()
		f.finish()
		slices.SortStableFunc(want, func(x, y string) int { return cmp.Compare(x[:1], y[:1]) })
		require.ElementsMatch(t, want, f.inbox.committed())
		for _, key := range []string{"a", "b"} {
			of := func(ids []string) []string {
				return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return id[:1] != key })
			}
			require.Equal(t, of(want), of(f.inbox.committed()), "by order of delivery")
		}
		require.LessOrEqual(t, len(sizes.all()), 4, "%v", sizes.all())
	})
}

// After a batch that failed, smaller ones for a while.
func TestBatchIsSmallerAfterAFailure(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFixture(t)
		sizes := f.sized()
		f.cfg.MaxBatch = 64
		f.cfg.Handler = handler(func(_ context.Context, tx *Tx, m *message) error {
			if m.ID == "m10" && m.Attempt == 1 {
				return errors.New("once")
			}
			return tx.Do(m.ID)
		})
		f.broker.Publish(msgs(1000)...)
		f.start()
		f.finish()
		all := sizes.all()
		require.Equal(t, 32, all[0], "%v", all)
		require.Equal(t, 64, slices.Max(all), "they grow again: %v", all)
	})
}

// The time limit is that of the batch: one that is too slow as a whole is handled
// in smaller ones, and nobody has failed.
func TestBatchThatIsTooSlowIsDivided(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.cfg.MaxBatch = 16
		f.cfg.HandlerTimeout = 10 * time.Second
		f.cfg.Handler = handler(func(ctx context.Context, tx *Tx, m *message) error {
			select {
			case <-time.After(3 * time.Second):
			case <-ctx.Done():
				return ctx.Err()
			}
			if m.Attempt != 1 {
				return fmt.Errorf("attempt %d", m.Attempt)
			}
			return tx.Do(m.ID)
		})
		f.broker.Publish(msgs(16)...)
		f.start()
		f.finish()
		require.Len(t, f.inbox.committed(), 16)
		require.Equal(t, []string{"INFO consumer started", "INFO consumer stopped"}, f.log.loud())
	})
}

func TestBatchOfDuplicatesAndMismatches(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		in := &asideInbox{memInbox: f.inbox}
		f.cfg.Inbox = in
		f.cfg.MaxBatch = 10
		ms := msgs(10)
		f.broker.Publish(ms[:3]...)
		f.start()
		other := msg("m1")
		other.Body = []byte("another")
		again := msg("m7")
		again.Body = []byte("another")
		f.broker.Publish(append(append(slices.Clone(ms), other), ms[7], again)...)
		f.finish()
		require.ElementsMatch(t, ids(ms), f.inbox.committed())
		require.Len(t, in.setAside(), 2)
	})
}

// A shutdown in the midst of a batch that does not end leaves nothing of it.
func TestBatchCutByTheShutdown(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.cfg.MaxBatch = 5
		f.cfg.Handler = handler(func(ctx context.Context, tx *Tx, m *message) error {
			if err := tx.Do(m.ID); err != nil || m.ID != "m3" {
				return err
			}
			<-ctx.Done()
			return ctx.Err()
		})
		f.cfg.HandlerTimeout = time.Hour
		f.broker.Publish(msgs(5)...)
		f.start()
		require.NoError(t, f.end())
		got := f.inbox.committed()
		require.NotContains(t, got, "m3")
		require.ElementsMatch(t, ids(msgs(5)), append(got, f.unacknowledged()...))
	})
}

func TestBatchConfig(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.cfg.Batch = consumer.BatchHandlerFunc[*Tx](func(context.Context, *Tx, []*message) error { return nil })
	f.cfg.Middleware = []consumer.Middleware[*Tx]{func(h consumer.Handler[*Tx]) consumer.Handler[*Tx] { return h }}
	f.cfg.Buffer, f.cfg.MaxBatch = 10, 11
	_, err := consumer.New(f.cfg)
	for _, want := range []string{"Batch: is set, and so is Handler", "Middleware: cannot wrap Batch", "Buffer: must hold at least MaxBatch (11)"} {
		require.ErrorContains(t, err, want)
	}
	f.cfg.Handler, f.cfg.Middleware, f.cfg.MaxBatch = nil, nil, -1
	_, err = consumer.New(f.cfg)
	require.ErrorContains(t, err, "MaxBatch: must not be negative")
}
