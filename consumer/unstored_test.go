package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
)

const unstored = "message can be neither processed nor set aside: it is kept unacknowledged until somebody removes the cause"

// What the database works and refuses is kept, shown and tried again; the others
// go on, except those of its key.
func TestRefusedMessageHoldsUpOnlyItself(t *testing.T) {
	onAside(t, func(t *testing.T, f *fixture, in *asideInbox) {
		told := f.hooked()
		f.cfg.Handler = handler(bad)
		var tries atomic.Int32
		in.failWith(func(s stage, m *message) error {
			if s == atAside && m.ID == "bad1" {
				tries.Add(1)
				return fmt.Errorf("%w: violates check constraint", consumer.ErrRefused)
			}
			return nil
		})
		f.broker.Publish(keyed("k", "bad1"), keyed("k", "k2"), keyed("j", "j1"), msg("bad2"), msg("free"))
		f.start()
		advance(24 * time.Hour)
		require.ElementsMatch(t, []string{"j1", "free"}, in.committed())
		require.LessOrEqual(t, tries.Load(), int32(24*60*2), "minutes apart")
		require.Len(t, f.log.with(unstored), int(tries.Load()))
		require.Equal(t, "ERROR", f.log.with(unstored)[0]["level"])
		require.Contains(t, f.log.with(unstored)[0]["error"], "check constraint")
		require.Equal(t, "bad1", f.log.with(unstored)[0]["messaging.message.id"])
		h := f.runner.Health()
		require.True(t, h.OK())
		require.Len(t, h.Unstored, 1)
		require.Equal(t, "bad1", h.Unstored[0].ID)
		require.Equal(t, "memory/0@0", h.Unstored[0].Position)
		require.Contains(t, h.Unstored[0].Error, "check constraint")
		require.Greater(t, time.Since(h.Unstored[0].Since), 23*time.Hour)
		require.Len(t, told.all(), 1, "bad2")

		in.failWith(nil)
		advance(5 * time.Minute)
		require.Empty(t, f.runner.Health().Unstored)
		f.finish()
		require.Len(t, in.setAside(), 2)
	})
}

// With the stream goes what it had in hand.
func TestRefusedMessageOfAStreamThatIsLost(t *testing.T) {
	onAside(t, func(t *testing.T, f *fixture, in *asideInbox) {
		f.cfg.Handler = handler(bad)
		in.failWith(func(s stage, _ *message) error {
			if s == atAside {
				return consumer.ErrRefused
			}
			return nil
		})
		f.broker.Publish(msg("bad"))
		f.start()
		advance(time.Minute)
		f.broker.Disconnect()
		advance(time.Minute)
		require.Len(t, f.runner.Health().Unstored, 1, "of the new stream only")
		require.NoError(t, f.end())
		require.Empty(t, f.runner.Health().Unstored)
		require.Equal(t, []string{"bad"}, f.unacknowledged())
	})
}

// What a retry from the table cannot store is no outage, and is not told as
// stored.
func TestRefusedRetry(t *testing.T) {
	onAside(t, func(t *testing.T, f *fixture, in *asideInbox) {
		f.cfg.Attempts, f.cfg.RetryLater = 1, []time.Duration{time.Minute}
		f.failing(100, func() error { return io.EOF })
		told := f.hooked()
		in.failWith(func(s stage, _ *message) error {
			if s == atStore {
				return consumer.ErrRefused
			}
			return nil
		})
		f.broker.Publish(msg("a"))
		f.start()
		advance(2 * time.Minute)
		require.NotEmpty(t, f.log.with(unstored))
		require.True(t, f.runner.Health().OK())
		require.Empty(t, told.all())
		require.Empty(t, f.log.with(paused))
		f.finish()
	})
}

// The id of a message that was never attempted may belong to another.
func TestMismatchThatOnlySettingAsideFinds(t *testing.T) {
	onAside(t, func(t *testing.T, f *fixture, in *asideInbox) {
		f.cfg.MaxBody = 3
		f.broker.Publish(msg("a"), &message{ID: "a", Body: []byte("too large")}, &message{ID: "b", Body: []byte("too large")})
		f.start()
		f.finish()
		require.Equal(t, []string{"a"}, in.committed())
		got := map[consumer.Reason]string{}
		for _, one := range in.setAside() {
			got[one.Reason] = one.Message.ID
			require.Equal(t, "too large", string(one.Message.Body))
			require.True(t, one.ForGood())
			require.Zero(t, one.Attempts)
		}
		require.Len(t, got, 2)
		require.Equal(t, "b", got[consumer.ReasonTooLarge])
		require.Contains(t, got[consumer.ReasonMismatch], "a#")
	})
}

// Without a limit nothing is too large; at the limit a message is not yet.
func TestMaxBody(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.broker.Publish(&message{ID: "a", Body: make([]byte, 1<<20)})
		f.start()
		f.finish()
		f.cfg.MaxBody = 3
		f.broker.Publish(&message{ID: "b", Body: []byte("bbb")}, &message{ID: "c", Body: []byte("cccc")})
		f.start()
		err := f.wait()
		require.ErrorContains(t, err, "it has 4 bytes, and Config.MaxBody is 3", "there is nowhere to set it aside")
		var stopped *consumer.MessageError
		require.ErrorAs(t, err, &stopped)
		require.Equal(t, "c", stopped.ID)
		f.cfg.MaxBody = -1
		_, err = consumer.New(f.cfg)
		require.ErrorContains(t, err, "MaxBody: must not be negative")
	})
}

// The hook is called after the acknowledgement, without a transaction, and for
// no longer than AckTimeout if it heeds its context.
func TestSetAsideHookThatHangs(t *testing.T) {
	onAside(t, func(t *testing.T, f *fixture, in *asideInbox) {
		f.onStreams(2)
		f.cfg.MaxTransactions = 1
		f.cfg.AckTimeout = time.Minute
		f.cfg.Handler = handler(bad)
		var acked, ended atomic.Bool
		f.cfg.OnSetAside = func(ctx context.Context, _ consumer.Failure) {
			drained, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			acked.Store(f.broker.Drained(drained) == nil)
			<-ctx.Done()
			ended.Store(true)
		}
		f.broker.Publish(msg("bad"))
		f.start()
		require.True(t, acked.Load(), "it was acknowledged before")
		f.broker.Publish(msgs(10)...)
		advance(30 * time.Second)
		require.False(t, ended.Load())
		require.GreaterOrEqual(t, len(in.committed()), 5, "the other stream has the transaction")
		advance(31 * time.Second)
		require.True(t, ended.Load())
		f.finish()
		require.Len(t, in.committed(), 10)
	})
}

// The hook of a retry from the table keeps no transaction either.
func TestSetAsideHookOfARetryHangs(t *testing.T) {
	onAside(t, func(t *testing.T, f *fixture, in *asideInbox) {
		f.cfg.Attempts, f.cfg.RetryLater = 1, []time.Duration{time.Minute}
		f.cfg.MaxTransactions = 1
		f.cfg.AckTimeout = time.Hour
		f.cfg.Handler = handler(func(ctx context.Context, tx *Tx, m *message) error {
			if m.ID == "failing" {
				return io.EOF
			}
			return effect(ctx, tx, m)
		})
		var called atomic.Bool
		f.cfg.OnSetAside = func(ctx context.Context, _ consumer.Failure) { called.Store(true); <-ctx.Done() }
		f.broker.Publish(msg("failing"))
		f.start()
		advance(2 * time.Minute)
		require.True(t, called.Load())
		f.broker.Publish(msg("good"))
		advance(time.Second)
		require.Equal(t, []string{"good"}, in.committed())
		f.finish()
	})
}

// A message that always loses to other transactions does not do so for ever.
func TestContentionOfARetryBecomesAnAttempt(t *testing.T) {
	onAside(t, func(t *testing.T, f *fixture, in *asideInbox) {
		f.cfg.Attempts, f.cfg.RetryLater = 1, []time.Duration{time.Minute, time.Minute}
		var runs atomic.Int32
		f.cfg.Handler = handler(func(_ context.Context, _ *Tx, m *message) error {
			if m.Attempt == 1 {
				return io.EOF
			}
			runs.Add(1)
			return errors.Join(consumer.ErrContention, errors.New("deadlock"))
		})
		told := f.hooked()
		f.broker.Publish(msg("a"))
		f.start()
		advance(70 * time.Second)
		require.Equal(t, 1, in.setAside()[0].Attempts, "not yet")
		advance(10 * time.Minute)
		require.Equal(t, int32(2*21), runs.Load(), "the 21st counts, as in place")
		require.Len(t, told.all(), 1)
		require.Equal(t, 3, told.all()[0].Attempts)
		require.Equal(t, consumer.ReasonFailed, told.all()[0].Reason)
		f.finish()
	})
}
