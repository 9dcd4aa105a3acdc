package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
)

// requireStoppedBy checks that m stopped the runner, unacknowledged, without a
// trace, and that the next runner gets it.
func (f *fixture) requireStoppedBy(id string) *consumer.MessageError {
	f.t.Helper()
	err := f.wait()
	var m *consumer.MessageError
	require.ErrorAs(f.t, err, &m)
	require.ErrorContains(f.t, err, `subscriber "billing"`)
	require.Equal(f.t, id, m.ID)
	require.Equal(f.t, "memory/0@1", m.Position)
	require.Equal(f.t, consumer.Stopped, f.runner.Health().State)
	require.Equal(f.t, err.Error(), f.runner.Health().Reason)
	require.Equal(f.t, "ERROR", f.log.with("consumer stopped")[0]["level"])
	require.Contains(f.t, f.unacknowledged(), id)
	require.NotContains(f.t, f.inbox.committed(), "bad")
	return m
}

func TestPermanentStopsTheRunner(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.cfg.Handler = handler(func(ctx context.Context, tx *Tx, m *message) error {
			if err := effect(ctx, tx, m); err != nil || m.ID != "bad" {
				return err
			}
			return errors.Join(errors.New("context"), consumer.Permanent(io.EOF))
		})
		f.broker.Publish(msg("good"), msg("bad"))
		f.start()
		require.ErrorIs(t, f.requireStoppedBy("bad"), io.EOF)
		require.Equal(t, []string{"good"}, f.inbox.committed())
	})
}

func TestUnidentifiedStopsTheRunner(t *testing.T) {
	for name, id := range map[string]string{
		"empty": "", "NUL": "a\x00", "UTF-8": "\xff", "long": strings.Repeat("x", 513),
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, f *fixture) {
				f.broker.Publish(msg("good"), msg(id))
				f.start()
				require.ErrorIs(t, f.requireStoppedBy(id), consumer.ErrNoID)
			})
		})
	}
}

func TestErrorAndPanicOfMessageIDStopTheRunner(t *testing.T) {
	for name, fail := range map[string]func() error{
		"error": func() error { return io.EOF },
		"panic": func() error { panic(io.EOF) },
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, f *fixture) {
				f.cfg.MessageID = func(m *message) (string, error) {
					if m.ID == "bad" {
						return "some", fail()
					}
					return m.ID, nil
				}
				f.broker.Publish(msg("good"), msg("bad"))
				f.start()
				stopped := f.requireStoppedBy("bad")
				require.ErrorIs(t, stopped, io.EOF)
				require.Equal(t, name == "error", errors.Is(stopped, consumer.ErrNoID))
			})
		})
	}
}

// Permanent has the last word, even on an error that looks like an outage.
func TestPermanentOutageOfTheHandlersOwn(t *testing.T) {
	for _, condition := range []error{consumer.ErrOutage, consumer.ErrContention} {
		t.Run(condition.Error(), func(t *testing.T) {
			onBoth(t, func(t *testing.T, f *fixture) {
				f.cfg.Handler = handler(func(_ context.Context, tx *Tx, m *message) error {
					if m.ID != "bad" {
						return effect(t.Context(), tx, m)
					}
					return consumer.Permanent(fmt.Errorf("another inbox: %w", condition))
				})
				f.broker.Publish(msg("good"), msg("bad"))
				f.start()
				require.ErrorIs(t, f.requireStoppedBy("bad"), condition)
			})
		})
	}
}

func TestMismatchStopsTheRunner(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.broker.Publish(msg("a"), &message{ID: "a", Body: []byte("bad")}, msg("later"))
		f.start()
		require.ErrorIs(t, f.requireStoppedBy("a"), consumer.ErrMismatch)
	})
}

// verdictInbox is an inbox with an opinion of its own.
type verdictInbox struct{ verdicts []consumer.Verdict }

func (i verdictInbox) Process(context.Context, string, []*message,
	func(context.Context, *Tx, []*message) error) ([]consumer.Verdict, error) {
	return i.verdicts, nil
}

// Only what an inbox calls processed, or a duplicate, may be acknowledged.
func TestUnknownVerdictStopsTheRunner(t *testing.T) {
	for name, verdicts := range map[string][]consumer.Verdict{
		"none": nil, "zero": {0}, "unheard of": {99}, "too many": {consumer.Processed, consumer.Processed},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				f := newFixture(t)
				f.cfg.Inbox = verdictInbox{verdicts}
				f.broker.Publish(msg("a"))
				f.start()
				require.ErrorContains(t, f.wait(), "verdict")
				require.Equal(t, []string{"a"}, f.unacknowledged())
			})
		})
	}
}

// greedySource has a stream that gives more than it was asked for.
type greedySource struct{ consumer.Source }

func (s greedySource) Run(ctx context.Context, serve func(context.Context, consumer.Stream) error) error {
	return s.Source.Run(ctx, func(ctx context.Context, stream consumer.Stream) error {
		return serve(ctx, greedyStream{stream})
	})
}

type greedyStream struct{ consumer.Stream }

func (s greedyStream) Next(ctx context.Context, limit int) ([]*message, error) {
	return s.Stream.Next(ctx, limit+1)
}

func TestStreamThatExceedsTheLimitStopsTheRunner(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFixture(t)
		f.cfg.Source = greedySource{f.broker}
		f.cfg.Buffer = 2
		f.broker.Publish(msgs(10)...)
		f.start()
		require.ErrorContains(t, f.wait(), "Next returned 3 messages")
	})
}

// The other handlers finish, and what they did is acknowledged.
func TestFatalMessageDrainsTheOthers(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.cfg.Workers = 3
		f.cfg.Handler = handler(func(ctx context.Context, tx *Tx, m *message) error {
			time.Sleep(time.Second)
			if m.ID == "m0" {
				return consumer.Permanent(io.EOF)
			}
			time.Sleep(time.Second)
			if ctx.Err() != nil {
				return errors.New("cut")
			}
			return effect(ctx, tx, m)
		})
		f.broker.Publish(msgs(3)...)
		f.start()
		require.ErrorIs(t, f.wait(), io.EOF)
		require.ElementsMatch(t, []string{"m1", "m2"}, f.inbox.committed())
		require.Equal(t, []string{"m0"}, f.unacknowledged())
	})
}

// The later messages of its key must not overtake the one that stopped.
func TestFatalMessageHoldsItsKey(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.cfg.Workers = 2
		f.cfg.Handler = handler(func(ctx context.Context, tx *Tx, m *message) error {
			if m.ID == "a1" {
				return consumer.Permanent(io.EOF)
			}
			return effect(ctx, tx, m)
		})
		f.broker.Publish(keyed("a", "a1"), keyed("a", "a2"))
		f.start()
		require.Error(t, f.wait())
		require.Empty(t, f.inbox.committed())
		require.Equal(t, []string{"a1", "a2"}, f.unacknowledged())
	})
}

func TestGoexitStopsTheRunner(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.cfg.Handler = handler(func(_ context.Context, tx *Tx, m *message) error {
			_ = tx.Do(m.ID)
			runtime.Goexit()
			return nil
		})
		f.broker.Publish(msg("a"))
		f.start()
		require.ErrorContains(t, f.wait(), "runtime.Goexit")
		require.Empty(t, f.inbox.committed())
		require.Equal(t, []string{"a"}, f.unacknowledged())
	})
}
