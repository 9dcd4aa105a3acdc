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

	"github.com/ackafter/ackafter/brokers/memory"
	"github.com/ackafter/ackafter/consumer"
)

const asideDead = "message set aside for good, in the dead letters"

// letters are dead letters whose broker can be away.
type letters struct {
	consumer.DeadLetter
	broker *memory.Broker
	fault  atomic.Pointer[error]
	calls  atomic.Int32
	closed atomic.Int32
}

func (l *letters) Publish(ctx context.Context, f consumer.Failure) error {
	l.calls.Add(1)
	if fault := l.fault.Load(); fault != nil {
		return *fault
	}
	return l.DeadLetter.Publish(ctx, f)
}

func (l *letters) Close() error { l.closed.Add(1); return nil }

func (l *letters) away(err error) {
	if err == nil {
		l.fault.Store(nil)
		return
	}
	l.fault.Store(&err)
}

// all returns what is there, by acknowledging nothing.
func (l *letters) all(t *testing.T) (ms []*message) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	require.NoError(t, l.broker.Run(ctx, func(ctx context.Context, s consumer.Stream) error {
		for {
			got, err := s.Next(ctx, 1000)
			if err != nil {
				return nil
			}
			ms = append(ms, got...)
		}
	}))
	return ms
}

// onDead runs the test with dead letters.
func onDead(t *testing.T, test func(t *testing.T, f *fixture, in *asideInbox, l *letters)) {
	onAside(t, func(t *testing.T, f *fixture, in *asideInbox) {
		broker := memory.New()
		l := &letters{DeadLetter: broker.DeadLetter(), broker: broker}
		f.cfg.DeadLetter = l
		f.cfg.RetryLater = []time.Duration{}
		test(t, f, in, l)
	})
}

// bad fails for good, and everything else has its effect.
func bad(ctx context.Context, tx *Tx, m *message) error {
	if strings.HasPrefix(m.ID, "bad") {
		return consumer.Permanent(io.ErrUnexpectedEOF)
	}
	return effect(ctx, tx, m)
}

// Each message that is set aside for good becomes a dead letter with its reason,
// and leaves no row behind: sent back, it runs.
func TestDeadLetter(t *testing.T) {
	onDead(t, func(t *testing.T, f *fixture, in *asideInbox, l *letters) {
		told := f.hooked()
		touched := atomic.Int32{}
		in.failWith(func(s stage, _ *message) error {
			if s == atTake || s == atAside || s == atStore {
				touched.Add(1)
			}
			return nil
		})
		f.cfg.MaxBody = 10
		f.cfg.Horizon = time.Hour
		f.cfg.Attempts = 2
		mended := false
		f.cfg.Handler = handler(func(ctx context.Context, tx *Tx, m *message) error {
			switch {
			case mended:
			case m.ID == "failed":
				return io.EOF
			default:
				return bad(ctx, tx, m)
			}
			return effect(ctx, tx, m)
		})
		old := msg("late")
		old.Time = time.Now().Add(-2 * time.Hour)
		f.broker.Publish(msg("a"),
			&message{ID: "bad", Key: []byte("k"), Body: []byte("b"), Type: "paid", Topic: "orders",
				Headers: consumer.Headers{{Key: "h", Value: []byte("v")}, {Key: consumer.HeaderReason, Value: []byte("stale")}}},
			&message{ID: "a", Body: []byte("other")}, msg(""), msg("failed"), old, &message{ID: "large", Body: make([]byte, 11)})
		f.start()
		f.finishAfter(time.Minute)
		require.Equal(t, []string{"a"}, in.committed())
		require.Zero(t, touched.Load(), "the table is not touched")
		require.Empty(t, in.setAside())
		var toldOf []string
		for _, f := range told.all() {
			toldOf = append(toldOf, f.Message.ID)
		}
		require.ElementsMatch(t, []string{"bad", "a", "", "failed", "late", "large"}, toldOf, "under ids of their own")
		require.Len(t, f.log.with(asideDead), 6)
		require.Equal(t, int32(1), l.closed.Load(), "when Run ends")
		got := map[string]string{}
		var replay []*message
		for _, m := range l.all(t) {
			require.Len(t, m.Headers.Values(consumer.HeaderReason), 1)
			require.True(t, strings.HasPrefix(m.Headers.Get(consumer.HeaderPosition), "memory/0@"))
			got[m.ID] = m.Headers.Get(consumer.HeaderReason) + " " + m.Headers.Get(consumer.HeaderAttempts) + " " + m.Headers.Get(consumer.HeaderError)
			if m.ID == "bad" {
				require.Equal(t, "v", m.Headers.Get("h"))
				require.Equal(t, "k b paid orders", string(m.Key)+" "+string(m.Body)+" "+m.Type+" "+m.Topic)
			}
			if m.ID == "bad" || m.ID == "failed" {
				replay = append(replay, m, m)
			}
		}
		require.Len(t, got, 6)
		require.Equal(t, "permanent 1 permanent: unexpected EOF", got["bad"])
		require.Equal(t, "failed 2 EOF", got["failed"])
		require.Contains(t, got["a"], "mismatch 0 another message was processed")
		require.Contains(t, got[""], "unidentified 0 message has no usable id")
		require.Contains(t, got["late"], "late 0 the message is late")
		require.Contains(t, got["large"], "too_large 0 the body is too large: it has 11 bytes")

		mended = true
		f.broker.Publish(replay...)
		f.start()
		f.finish()
		require.Equal(t, []string{"a", "b", "failed"}, in.committed(), "sent back twice, and once in effect")
	})
}

// While dead letters cannot be published nothing is acknowledged, no attempt is
// counted, and the runner stands still.
func TestDeadLetterOutage(t *testing.T) {
	onDead(t, func(t *testing.T, f *fixture, in *asideInbox, l *letters) {
		made := f.failing(100, func() error { return consumer.Permanent(io.EOF) })
		l.away(errors.New("no exchange"))
		f.cfg.Workers = 4
		f.cfg.Probe = consumer.Backoff{Min: time.Second, Max: time.Second}
		f.broker.Publish(msg("bad"))
		f.start()
		advance(10 * time.Second)
		f.broker.Publish(msg("good"))
		advance(time.Minute)
		requireCounted(t, made.all(), 1)
		require.LessOrEqual(t, l.calls.Load(), int32(1+70*10), "with a wait in between")
		require.Len(t, f.log.with(paused), 1)
		h := f.runner.Health()
		require.Equal(t, consumer.Paused, h.State)
		require.Contains(t, h.Reason, "dead letters: no exchange")
		require.Empty(t, l.all(t))
		l.away(nil)
		advance(time.Minute)
		require.Len(t, f.log.with(resumed), 1)
		require.Equal(t, consumer.Running, f.runner.Health().State)
		f.finish()
		require.Len(t, l.all(t), 2)
	})
}

// A runner that is stopped meanwhile leaves the message with the broker.
func TestDeadLetterShutdownDuringOutage(t *testing.T) {
	onDead(t, func(t *testing.T, f *fixture, in *asideInbox, l *letters) {
		f.cfg.Handler = handler(bad)
		l.away(io.EOF)
		f.broker.Publish(msg("bad"))
		f.start()
		advance(time.Minute)
		f.broker.Publish(msg("good"))
		advance(time.Minute)
		require.NoError(t, f.end())
		require.Equal(t, []string{"bad", "good"}, f.unacknowledged())
		require.Empty(t, in.committed())
		require.Empty(t, f.log.with(resumed))
	})
}

// The loss of the stream whose message nobody can publish does not leave the
// others standing still.
func TestDeadLetterStreamLostDuringOutage(t *testing.T) {
	onDead(t, func(t *testing.T, f *fixture, in *asideInbox, l *letters) {
		f.onStreams(2)
		f.cfg.Handler = handler(bad)
		l.away(io.EOF)
		f.broker.Publish(msg("bad"))
		f.start()
		advance(time.Minute)
		f.broker.Disconnect()
		l.away(nil)
		f.broker.Publish(msg("good1"), msg("good2"))
		f.finishAfter(10 * time.Second)
		require.ElementsMatch(t, []string{"good1", "good2"}, in.committed())
		require.Len(t, l.all(t), 1)
	})
}

// With RetryLater the table has the message until its last attempt. Then it goes
// to the dead letters, and neither row is left.
func TestDeadLetterAfterRetryLater(t *testing.T) {
	onDead(t, func(t *testing.T, f *fixture, in *asideInbox, l *letters) {
		f.cfg.Attempts, f.cfg.RetryLater = 1, []time.Duration{time.Minute, time.Minute}
		f.cfg.Probe = consumer.Backoff{Min: time.Second, Max: time.Second}
		made := f.failing(1000, func() error { return io.EOF })
		told := f.hooked()
		l.away(io.ErrClosedPipe)
		f.broker.Publish(msg("a"))
		f.start()
		advance(90 * time.Second)
		require.Len(t, in.setAside(), 1)
		require.Zero(t, l.calls.Load(), "it is not for good yet")
		advance(5 * time.Minute)
		require.Len(t, in.setAside(), 1)
		require.Equal(t, 2, in.setAside()[0].Attempts, "what could not be published is not counted")
		require.Positive(t, l.calls.Load())
		require.Equal(t, consumer.Paused, f.runner.Health().State)
		require.Contains(t, f.runner.Health().Reason, "dead letters: "+io.ErrClosedPipe.Error())
		require.Len(t, f.log.with(paused), 1)
		require.Empty(t, told.all())
		l.away(nil)
		f.finishAfter(time.Minute)
		require.Empty(t, in.setAside())
		require.Len(t, l.all(t), 1)
		require.Equal(t, "3", l.all(t)[0].Headers.Get(consumer.HeaderAttempts))
		require.Len(t, told.all(), 1)
		require.Len(t, f.log.with(resumed), 1)
		requireCounted(t, made.all(), 3)
		f.failing(0, nil)
		f.broker.Publish(l.all(t)...)
		f.start()
		f.finish()
		require.Equal(t, []string{"a"}, in.committed(), "it is new again")
	})
}

// What was remembered of it meanwhile does not keep its last attempt from running
// when it is sent back.
func TestDeadLetterSentBackHasItsLastAttempt(t *testing.T) {
	onDead(t, func(t *testing.T, f *fixture, in *asideInbox, l *letters) {
		f.cfg.Attempts, f.cfg.RetryLater = 1, []time.Duration{time.Minute}
		var mended atomic.Bool
		f.cfg.Handler = handler(func(ctx context.Context, tx *Tx, m *message) error {
			if m.Attempt == 1 || !mended.Load() {
				return io.EOF
			}
			return effect(ctx, tx, m)
		})
		l.away(io.ErrClosedPipe)
		f.broker.Publish(msg("a"))
		f.start()
		advance(2 * time.Minute)
		l.away(nil)
		advance(time.Minute)
		require.Empty(t, in.setAside())
		mended.Store(true)
		f.broker.Publish(l.all(t)...)
		f.finishAfter(2 * time.Minute)
		require.Equal(t, []string{"a"}, in.committed())
	})
}

// An outage of the database under one of the dead letters does not end it.
func TestDeadLetterOutageUnderAnother(t *testing.T) {
	onDead(t, func(t *testing.T, f *fixture, in *asideInbox, l *letters) {
		f.cfg.Attempts, f.cfg.RetryLater = 1, []time.Duration{time.Minute}
		f.failing(1000, func() error { return io.EOF })
		l.away(io.ErrClosedPipe)
		f.broker.Publish(msg("a"))
		f.start()
		advance(2 * time.Minute)
		require.Contains(t, f.runner.Health().Reason, "dead letters")
		in.away(errAway)
		advance(time.Minute)
		require.Equal(t, errAway.Error(), f.runner.Health().Reason)
		in.away(nil)
		advance(time.Minute)
		require.Contains(t, f.runner.Health().Reason, "dead letters")
		require.Len(t, f.log.with(paused), 2)
		require.Len(t, f.log.with(resumed), 1, "of the database only")
		require.NoError(t, f.end())
		require.Len(t, f.log.with(resumed), 1)
		require.Len(t, in.setAside(), 1)
	})
}

// The dead letters' broker works, and will never take this message.
func TestDeadLetterRefused(t *testing.T) {
	onDead(t, func(t *testing.T, f *fixture, in *asideInbox, l *letters) {
		f.cfg.Handler = handler(bad)
		refusal := errors.Join(consumer.ErrRefused, errors.New("larger than max_message_size"))
		l.away(refusal)
		f.broker.Publish(msg("bad"), msg("good"))
		f.start()
		advance(time.Hour)
		require.Equal(t, []string{"good"}, in.committed(), "the others go on")
		h := f.runner.Health()
		require.Equal(t, consumer.Running, h.State)
		require.Len(t, h.Unstored, 1)
		require.Equal(t, "bad", h.Unstored[0].ID)
		require.Contains(t, h.Unstored[0].Error, "max_message_size")
		require.LessOrEqual(t, l.calls.Load(), int32(200))
		l.away(nil)
		advance(5 * time.Minute)
		require.Empty(t, f.runner.Health().Unstored)
		f.finish()
		require.Len(t, l.all(t), 1)
	})
}

// An inbox that can set nothing aside can have dead letters all the same.
func TestDeadLetterWithAPlainInbox(t *testing.T) {
	onDead(t, func(t *testing.T, f *fixture, in *asideInbox, l *letters) {
		f.cfg.Inbox = f.inbox
		f.cfg.RetryLater = nil
		f.failing(100, func() error { return io.EOF })
		f.broker.Publish(msg("a"), msg(""))
		f.start()
		f.finishAfter(time.Minute)
		require.Len(t, l.all(t), 2)
	})
}

func TestDeadLetterConfig(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFixture(t)
		f.cfg.Inbox = orderedInbox{&asideInbox{memInbox: f.inbox}}
		f.cfg.KeepOrder = true
		f.cfg.DeadLetter = memory.New().DeadLetter()
		_, err := consumer.New(f.cfg)
		require.ErrorContains(t, err, "DeadLetter: cannot be used with KeepOrder")
		f.cfg.KeepOrder = false
		f.cfg.DeadLetter = (&memory.Broker{}).DeadLetter()
		_, err = consumer.New(f.cfg)
		require.ErrorContains(t, err, "DeadLetter: memory: make the broker")
		f.cfg.DeadLetter = (*letters)(nil)
		_, err = consumer.New(f.cfg)
		require.ErrorContains(t, err, "DeadLetter: is a nil *consumer_test.letters")
	})
}

// A dead letter has the id that the message came with, so that one made from it
// is the same when it is sent back.
func TestDeadLetterKeepsTheProducersID(t *testing.T) {
	onDead(t, func(t *testing.T, f *fixture, in *asideInbox, l *letters) {
		f.cfg.MessageID = consumer.ScopedID(consumer.HeaderID("tenant"), consumer.BrokerID)
		f.cfg.Handler = handler(func(context.Context, *Tx, *message) error { return consumer.Permanent(io.EOF) })
		m := msg("a")
		m.Headers = consumer.Headers{{Key: "tenant", Value: []byte("t")}}
		f.broker.Publish(m)
		f.start()
		f.finish()
		f.cfg.Handler = handler(effect)
		f.broker.Publish(m, l.all(t)[0])
		f.start()
		f.finish()
		require.Equal(t, []string{"a"}, in.committed())
	})
}

type orderedInbox struct{ *asideInbox }

func (orderedInbox) Behind(context.Context, *Tx, string, *consumer.Message) (bool, error) {
	return false, nil
}

// In batches, what becomes a dead letter costs the others nothing.
func TestDeadLetterInBatches(t *testing.T) {
	onDead(t, func(t *testing.T, f *fixture, in *asideInbox, l *letters) {
		f.cfg.Handler, f.cfg.MaxBatch, f.cfg.MaxBody = handler(bad), 20, 10
		var good []string
		for i, m := range msgs(100) {
			switch i % 10 {
			case 3:
				m.ID = "bad" + m.ID
			case 5:
				m.Body = make([]byte, 11)
			case 7:
				m.ID = ""
			default:
				good = append(good, m.ID)
			}
			f.broker.Publish(m)
		}
		f.start()
		f.finish()
		require.ElementsMatch(t, good, in.committed())
		counts := map[string]int{}
		for _, m := range l.all(t) {
			counts[m.Headers.Get(consumer.HeaderReason)]++
		}
		require.Equal(t, map[string]int{"permanent": 10, "too_large": 10, "unidentified": 10}, counts)
		require.Empty(t, in.setAside())
	})
}

// A panic in Publish is trouble like any other.
func TestDeadLetterThatPanics(t *testing.T) {
	onDead(t, func(t *testing.T, f *fixture, _ *asideInbox, l *letters) {
		f.cfg.Handler = handler(bad)
		f.cfg.DeadLetter = panics{}
		f.broker.Publish(msg("bad"))
		f.start()
		advance(time.Minute)
		require.Contains(t, f.runner.Health().Reason, "in Config.DeadLetter: panic: on purpose")
		require.NoError(t, f.end())
	})
}

type panics struct{}

func (panics) Publish(context.Context, consumer.Failure) error { panic("on purpose") }
