package consumer_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/brokers/memory"
	"github.com/ackafter/ackafter/consumer"
)

type (
	config  = consumer.Config[*Tx]
	message = consumer.Message
	handler = consumer.HandlerFunc[*Tx]
)

// fixture is a runner on the memory broker and an inbox in memory. A test
// changes cfg, and then calls start.
type fixture struct {
	t      *testing.T
	broker *memory.Broker
	inbox  *memInbox
	log    *recorder
	cfg    config
	runner *consumer.Runner[*Tx]
	stop   context.CancelFunc
	done   chan struct{} // closed when Run has returned
	err    error         // what it returned
}

// longest is how long a test waits for anything, in the time of its bubble.
const longest = 6 * time.Hour

// onBoth runs the test with each kind of inbox, in a bubble with a time of its
// own.
func onBoth(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Parallel()
	for _, sessions := range []bool{false, true} {
		t.Run(fmt.Sprintf("sessions=%v", sessions), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				if sessions {
					f.cfg.Inbox = sessionInbox{f.inbox}
				}
				test(t, f)
			})
		})
	}
}

// newFixture returns a fixture whose handler has the message's body as its
// effect.
func newFixture(t *testing.T) *fixture {
	f := &fixture{t: t, inbox: newInbox(), log: &recorder{}}
	f.onStreams(1)
	f.cfg.Subscriber = "billing"
	f.cfg.Inbox = f.inbox
	f.cfg.Logger = f.log.logger()
	f.cfg.Handler = handler(effect)
	return f
}

func effect(_ context.Context, tx *Tx, m *message) error { return tx.Do(string(m.Body)) }

func (f *fixture) onStreams(n int) {
	f.broker = memory.NewWithConfig(memory.Config{Streams: n})
	f.cfg.Source = f.broker
}

// start runs a new runner until the test ends, or stop is called.
func (f *fixture) start() {
	f.t.Helper()
	var err error
	f.runner, err = consumer.New(f.cfg)
	require.NoError(f.t, err)
	ctx, cancel := context.WithCancel(f.t.Context())
	done := make(chan struct{})
	f.stop, f.done = cancel, done
	go func() {
		defer close(done)
		f.err = f.runner.Run(ctx)
	}()
	f.t.Cleanup(func() {
		cancel()
		<-done
		synctest.Wait() // for handlers that were left behind
		require.Empty(f.t, f.inbox.complaints())
	})
	synctest.Wait()
}

// end stops the runner and returns what Run returned.
func (f *fixture) end() error {
	f.stop()
	return f.wait()
}

// wait returns what Run returned, once it has.
func (f *fixture) wait() error {
	f.t.Helper()
	select {
	case <-f.done:
	case <-time.After(longest):
		require.FailNow(f.t, "Run does not return")
	}
	return f.err
}

// finish waits until everything is acknowledged, and stops the runner.
func (f *fixture) finish() {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), longest)
	defer cancel()
	require.NoError(f.t, f.broker.Drained(ctx), "not everything was acknowledged")
	require.NoError(f.t, f.end())
}

// unacknowledged returns how many messages a next runner gets.
func (f *fixture) unacknowledged() (ids []string) {
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Hour)
	defer cancel()
	require.NoError(f.t, f.broker.Run(ctx, func(ctx context.Context, s consumer.Stream) error {
		for {
			ms, err := s.Next(ctx, 100)
			if err != nil {
				return nil
			}
			for _, m := range ms {
				ids = append(ids, m.ID)
			}
		}
	}))
	return ids
}

// advance lets time pass, and what is due in it happen.
func advance(d time.Duration) {
	time.Sleep(d) // in the bubble
	synctest.Wait()
}

// msg returns a message without a key; its body is its id.
func msg(id string) *message { return keyed("", id) }

func keyed(key, id string) *message {
	return &message{ID: id, Key: []byte(key), Body: []byte(id)}
}

// msgs returns n messages without a key.
func msgs(n int) []*message {
	ms := make([]*message, n)
	for i := range ms {
		ms[i] = msg(fmt.Sprintf("m%d", i))
	}
	return ms
}

func ids(ms []*message) []string {
	all := make([]string, len(ms))
	for i, m := range ms {
		all[i] = m.ID
	}
	return all
}

// inBubble runs the test in parallel, with a time of its own.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Parallel()
	synctest.Test(t, test)
}

// list is what handlers note down.
type list[T any] struct {
	mu    sync.Mutex
	items []T
}

func (l *list[T]) add(item T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.items = append(l.items, item)
}

func (l *list[T]) all() []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.items)
}
