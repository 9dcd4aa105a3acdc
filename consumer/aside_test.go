package consumer_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
)

const (
	asideLater = "message set aside, to be tried again later"
	asideEver  = "message set aside for good: somebody has to decide"
)

// hooked notes what OnSetAside is told.
func (f *fixture) hooked() *list[consumer.Failure] {
	var told list[consumer.Failure]
	f.cfg.OnSetAside = func(_ context.Context, failure consumer.Failure) { told.add(failure) }
	return &told
}

// The defaults, as docs/failures.md says them out loud.
func TestSetAsideByDefault(t *testing.T) {
	onAside(t, func(t *testing.T, f *fixture, in *asideInbox) {
		made := f.failing(100, func() error { return io.EOF })
		told := f.hooked()
		f.broker.Publish(msg("a"))
		f.start()
		advance(30 * time.Second)
		requireCounted(t, made.all(), 3)
		require.Len(t, in.setAside(), 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.NoError(t, f.broker.Drained(ctx), "it is acknowledged")
		advance(8 * time.Hour)
		require.NoError(t, f.end())
		all := made.all()
		requireCounted(t, all, 7)
		for i, wait := range []time.Duration{time.Minute, 10 * time.Minute, time.Hour, 6 * time.Hour} {
			got := all[i+3].at.Sub(all[i+2].at)
			require.GreaterOrEqual(t, got, wait*9/10)
			require.LessOrEqual(t, got, wait+time.Second, "with RetryPoll")
		}
		require.Len(t, told.all(), 1)
		require.Equal(t, consumer.ReasonFailed, told.all()[0].Reason)
		require.Equal(t, 7, told.all()[0].Attempts)
		require.Len(t, f.log.with(asideLater), 4)
		require.Len(t, f.log.with(asideEver), 1)
		require.Empty(t, in.committed())
	})
}

func TestSetAsideSucceedsLater(t *testing.T) {
	onAside(t, func(t *testing.T, f *fixture, in *asideInbox) {
		f.cfg.RetryLater = []time.Duration{time.Minute}
		made := f.failing(4, func() error { return io.EOF })
		told := f.hooked()
		f.broker.Publish(msg("a"))
		f.start()
		f.finishAfter(2 * time.Minute)
		requireCounted(t, made.all(), 4)
		require.Equal(t, []string{"a"}, in.committed())
		require.Empty(t, in.setAside())
		require.Empty(t, told.all())
		require.Len(t, f.log.with("message processed that had been set aside"), 1)
	})
}

// finishAfter lets time pass, and stops the runner, with nothing left in the broker.
func (f *fixture) finishAfter(d time.Duration) {
	f.t.Helper()
	advance(d)
	f.finish()
}

func TestMismatchIsSetAsideOnce(t *testing.T) {
	onAside(t, func(t *testing.T, f *fixture, in *asideInbox) {
		id := strings.Repeat("x", consumer.MaxIDBytes)
		told := f.hooked()
		other := &message{ID: id, Body: []byte("bad")}
		f.broker.Publish(msg(id), other, &message{ID: id, Body: []byte("bad")}, msg("later"))
		f.start()
		f.finish()
		require.Equal(t, []string{id, "later"}, in.committed())
		require.Len(t, in.setAside(), 1)
		require.Len(t, told.all(), 1, "once, and not for its duplicate")
		got := in.setAside()[0]
		require.Equal(t, consumer.ReasonMismatch, got.Reason)
		require.Zero(t, got.Attempts)
		require.True(t, got.ForGood())
		require.Equal(t, "bad", string(got.Message.Body))
		require.NoError(t, consumer.CheckID(got.Message.ID))
	})
}

func TestUnidentifiedIsSetAside(t *testing.T) {
	onAside(t, func(t *testing.T, f *fixture, in *asideInbox) {
		f.cfg.MessageID = func(m *message) (string, error) {
			if m.ID == "panics" {
				panic(io.EOF)
			}
			return m.ID, nil
		}
		told := f.hooked()
		f.broker.Publish(msg(""), msg("\xff"), msg("panics"), msg("good"))
		f.start()
		f.finish()
		require.Equal(t, []string{"good"}, in.committed())
		require.Len(t, told.all(), 3)
		for i, got := range in.setAside() {
			require.Equal(t, consumer.ReasonUnidentified, got.Reason)
			require.Equal(t, []string{"unidentified:memory/0@0", "unidentified:memory/0@1", "unidentified:memory/0@2"}[i], got.Message.ID)
			require.True(t, got.ForGood())
		}
	})
}

// A message that cannot be set aside, because the database is away, stays with
// the broker and in hand.
func TestOutageWhileSettingAside(t *testing.T) {
	onAside(t, func(t *testing.T, f *fixture, in *asideInbox) {
		f.cfg.Handler = handler(func(context.Context, *Tx, *message) error { return consumer.Permanent(io.EOF) })
		told := f.hooked()
		in.failWith(func(s stage, _ *message) error {
			if s == atAside {
				return errAway
			}
			return nil
		})
		f.broker.Publish(msg("a"))
		f.start()
		advance(time.Minute)
		require.Empty(t, in.setAside())
		require.Empty(t, told.all())
		in.away(nil)
		f.finishAfter(10 * time.Second)
		require.Len(t, in.setAside(), 1)
		require.Equal(t, 1, in.setAside()[0].Attempts, "attempted once, however often it could not be stored")
		require.Len(t, told.all(), 1)
	})
}

// slowToBlame is an inbox that takes its time to find out whether the database is
// there, when a handler has failed.
type slowToBlame struct{ *asideInbox }

func (in slowToBlame) Process(ctx context.Context, subscriber string, ms []*message,
	apply func(context.Context, *Tx, []*message) error) ([]consumer.Verdict, error) {
	v, err := in.asideInbox.Process(ctx, subscriber, ms, apply)
	if err != nil {
		time.Sleep(time.Second)
	}
	return v, err
}

// The poller finds the database away, and back, while a handler that hung because
// of it is being judged.
func TestOutageThatIsOverWhenATimeoutIsJudged(t *testing.T) {
	onAside(t, func(t *testing.T, f *fixture, in *asideInbox) {
		f.cfg.Inbox = slowToBlame{in}
		f.cfg.HandlerTimeout, f.cfg.RetryPoll = time.Second, 100*time.Millisecond
		calls := 0
		f.cfg.Handler = handler(func(ctx context.Context, tx *Tx, m *message) error {
			if calls++; calls == 1 {
				<-ctx.Done()
				return ctx.Err()
			}
			return effect(ctx, tx, m)
		})
		f.broker.Publish(msg("a"))
		f.start()
		advance(1200 * time.Millisecond)
		in.away(errAway)
		advance(200 * time.Millisecond)
		in.away(nil)
		advance(400 * time.Millisecond)
		require.Equal(t, consumer.Running, f.runner.Health().State)
		f.finish()
		require.Equal(t, 2, calls)
		require.Empty(t, f.log.with("attempt failed"))
		require.Equal(t, []string{"a"}, in.committed())
	})
}

// asideInAMinute sets a message aside, which is due in a minute.
func (f *fixture) asideInAMinute() *list[attempt] {
	f.cfg.Attempts = 1
	f.cfg.RetryLater = []time.Duration{time.Minute, time.Minute}
	made := f.failing(2, func() error { return io.EOF })
	f.broker.Publish(msg("a"))
	f.start()
	advance(10 * time.Second)
	return made
}

// What is due waits for the database like everything else, and as seldom asks.
func TestOutageHoldsRetriesBack(t *testing.T) {
	onAside(t, func(t *testing.T, f *fixture, in *asideInbox) {
		f.cfg.Probe = consumer.Backoff{Min: time.Minute, Max: time.Minute}
		made := f.asideInAMinute()
		var takes atomic.Int32
		in.failWith(func(s stage, _ *message) error {
			if s == atTake {
				takes.Add(1)
			}
			return errAway
		})
		advance(100 * time.Minute)
		require.Equal(t, consumer.Paused, f.runner.Health().State)
		require.LessOrEqual(t, takes.Load(), int32(1+100*10), "no more than the probe")
		require.Len(t, made.all(), 1)
		require.Len(t, f.log.with(paused), 1)
		seen := takes.Load()
		require.Positive(t, seen)
		in.away(nil)
		f.finishAfter(2 * time.Minute)
		requireCounted(t, made.all(), 2)
		require.Equal(t, []string{"a"}, in.committed())
		require.Equal(t, consumer.Stopped, f.runner.Health().State)
		require.Len(t, f.log.with(resumed), 1)
	})
}

// An outage in the middle of an attempt, even one that fails and cannot be
// stored, is none.
func TestOutageDuringARetry(t *testing.T) {
	for _, where := range []stage{atCommit, atStatement, atStore} {
		t.Run(string(where), func(t *testing.T) {
			onAside(t, func(t *testing.T, f *fixture, in *asideInbox) {
				made := f.asideInAMinute()
				told := f.hooked()
				fails := true
				in.failWith(func(s stage, m *message) error {
					switch {
					case s == where && where != atStore:
						return errAway
					case where == atStore && s == atCommit && fails:
						return io.ErrClosedPipe // a failure of its own, which is to be stored
					case s == where:
						return errAway
					}
					return nil
				})
				advance(5 * time.Minute)
				require.Equal(t, 1, in.setAside()[0].Attempts, "nothing is counted")
				require.Len(t, f.log.with(asideLater), 1, "nothing is claimed to be stored")
				require.Len(t, f.log.with(paused), 1+len(f.log.with(resumed)))
				fails = false
				in.away(nil)
				f.finishAfter(time.Minute)
				require.Equal(t, []string{"a"}, in.committed())
				require.Equal(t, 2, made.all()[len(made.all())-1].n)
				require.Empty(t, told.all())
			})
		})
	}
}

// A retry in flight has DrainTimeout to finish; another one is not begun.
func TestShutdownLetsARetryFinish(t *testing.T) {
	onAside(t, func(t *testing.T, f *fixture, in *asideInbox) {
		begun := f.slowRetries(12 * time.Second)
		f.broker.Publish(msg("a"), msg("b"))
		f.start()
		advance(time.Minute + 5*time.Second)
		require.Equal(t, int32(1), begun.Load())
		require.NoError(t, f.end())
		require.Len(t, in.committed(), 1)
		require.Equal(t, int32(1), begun.Load())
		require.Len(t, in.setAside(), 1)
	})
}

func TestShutdownCutsARetryShort(t *testing.T) {
	onAside(t, func(t *testing.T, f *fixture, in *asideInbox) {
		told := f.hooked()
		f.cfg.RetryLater = []time.Duration{time.Minute}
		begun := f.slowRetries(time.Minute)
		f.cfg.HandlerTimeout, f.cfg.DrainTimeout = time.Hour, time.Second
		f.broker.Publish(msg("a"))
		f.start()
		advance(time.Minute + 5*time.Second)
		require.Equal(t, int32(1), begun.Load())
		require.NoError(t, f.end())
		require.Empty(t, in.committed())
		require.Len(t, in.setAside(), 1)
		require.Equal(t, 1, in.setAside()[0].Attempts, "not counted")
		require.False(t, in.setAside()[0].ForGood())
		require.Empty(t, told.all())
		require.Len(t, f.log.with(asideLater), 1)
	})
}

// slowRetries makes handlers fail in place, and later take d.
func (f *fixture) slowRetries(d time.Duration) *atomic.Int32 {
	var begun atomic.Int32
	f.cfg.Attempts = 1
	f.cfg.Handler = handler(func(ctx context.Context, tx *Tx, m *message) error {
		if m.Attempt == 1 {
			return io.EOF
		}
		begun.Add(1)
		select {
		case <-time.After(d):
			return effect(ctx, tx, m)
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	return &begun
}

// Retries take turns with the stream for the transactions that there are.
func TestSetAsideKeepsToMaxTransactions(t *testing.T) {
	onAside(t, func(t *testing.T, f *fixture, _ *asideInbox) {
		f.cfg.MaxTransactions = 1
		var now, most atomic.Int32
		f.cfg.Attempts = 1
		f.cfg.Handler = handler(func(ctx context.Context, tx *Tx, m *message) error {
			most.Store(max(most.Load(), now.Add(1)))
			defer now.Add(-1)
			time.Sleep(time.Second)
			if m.Attempt == 1 && len(m.ID) == 2 {
				return io.EOF
			}
			return effect(ctx, tx, m)
		})
		f.cfg.RetryLater = []time.Duration{time.Second}
		all := msgs(30)
		f.broker.Publish(all[:10]...)
		f.start()
		advance(10500 * time.Millisecond)
		f.broker.Publish(all[10:]...) // while the first are due
		f.finishAfter(time.Minute)
		require.Equal(t, int32(1), most.Load())
		require.ElementsMatch(t, ids(all), f.inbox.committed())
	})
}

func TestSetAsideHookThatPanics(t *testing.T) {
	onAside(t, func(t *testing.T, f *fixture, in *asideInbox) {
		calls := 0
		f.cfg.RetryLater = []time.Duration{time.Minute}
		f.cfg.OnSetAside = func(context.Context, consumer.Failure) { calls++; panic("on purpose") }
		f.cfg.Handler = handler(func(ctx context.Context, tx *Tx, m *message) error {
			switch m.ID {
			case "permanent":
				return consumer.Permanent(io.EOF)
			case "later":
				return io.EOF
			}
			return effect(ctx, tx, m)
		})
		f.broker.Publish(msg("permanent"), msg("later"), msg("good"))
		f.start()
		f.finishAfter(5 * time.Minute)
		require.Equal(t, 2, calls)
		require.Len(t, f.log.with("Config.OnSetAside panicked"), 2)
		require.Contains(t, f.log.with("Config.OnSetAside panicked")[0]["error"], "on purpose")
		require.Equal(t, []string{"good"}, in.committed())
		require.Len(t, in.setAside(), 2)
	})
}

func TestSetAsideByClassify(t *testing.T) {
	onAside(t, func(t *testing.T, f *fixture, in *asideInbox) {
		f.cfg.Classify = func(err error) error {
			switch {
			case errors.Is(err, io.EOF):
				return consumer.Permanent(err)
			case errors.Is(err, io.ErrShortWrite):
				return consumer.RetryAfter(time.Hour, err)
			case errors.Is(err, io.ErrNoProgress):
				return nil
			}
			return err
		}
		f.cfg.Handler = handler(func(ctx context.Context, tx *Tx, m *message) error {
			_ = effect(ctx, tx, m)
			return map[string]error{"eof": io.EOF, "short": io.ErrShortWrite, "fine": io.ErrNoProgress}[m.ID]
		})
		f.broker.Publish(msg("eof"), msg("short"), msg("fine"), msg("good"))
		f.start()
		f.finishAfter(time.Minute)
		require.Equal(t, []string{"fine", "good"}, in.committed())
		got := map[string]consumer.Failure{}
		for _, a := range in.setAside() {
			got[a.Message.ID] = a
		}
		require.Len(t, got, 2)
		require.Equal(t, consumer.ReasonPermanent, got["eof"].Reason)
		require.Equal(t, consumer.ReasonFailed, got["short"].Reason)
		require.Equal(t, time.Hour, got["short"].RetryIn)
		require.Equal(t, 1, got["short"].Attempts)
	})
}
