package consumer_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
)

// What had begun on a lost stream finishes, and the next stream delivers it
// again, as a duplicate.
func TestLostStream(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		var handled list[string]
		f.cfg.Handler = handler(func(ctx context.Context, tx *Tx, m *message) error {
			handled.add(m.ID)
			if m.ID == "m0" && m.Redelivered {
				return errors.New("a duplicate was handled")
			}
			return slow(time.Second)(ctx, tx, m)
		})
		f.broker.Publish(msgs(3)...)
		f.start()
		f.broker.Disconnect()
		synctest.Wait()
		require.Equal(t, consumer.Running, f.runner.Health().State, "the loss of a stream is the source's to heal")
		f.finish()
		require.Equal(t, []string{"m0", "m1", "m2"}, handled.all(), "m0 once, and the others on the next stream")
		require.Equal(t, []string{"m0", "m1", "m2"}, f.inbox.committed())
		var verdicts []any
		for _, l := range append(f.log.with("message settled, and its acknowledgement lost"), f.log.with("message settled")...) {
			verdicts = append(verdicts, l["ackafter.verdict"])
		}
		require.Equal(t, []any{"processed", "duplicate", "processed", "processed"}, verdicts)
		require.Equal(t, []string{"INFO consumer started", "INFO consumer stopped"}, f.log.loud())
	})
}

func TestLostStreamCutsHandlersAtDrainTimeout(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.cfg.DrainTimeout = 3 * time.Second
		f.cfg.Handler = handler(func(ctx context.Context, tx *Tx, m *message) error {
			if !m.Redelivered {
				return slow(time.Hour)(ctx, tx, m)
			}
			if m.Attempt != 1 {
				return errors.New("the loss of a stream counts no attempt")
			}
			return effect(ctx, tx, m)
		})
		f.broker.Publish(msg("a"))
		f.start()
		began := time.Now()
		f.broker.Disconnect()
		f.finish()
		require.Equal(t, 3*time.Second, time.Since(began))
		require.Equal(t, []string{"a"}, f.inbox.committed())
		require.Empty(t, f.log.with("attempt failed"))
	})
}

func TestManyLostStreams(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.onStreams(3)
		f.cfg.Workers = 2
		f.cfg.Handler = slow(5 * time.Millisecond)
		f.broker.Publish(msgs(300)...)
		f.start()
		for range 50 {
			advance(3 * time.Millisecond)
			f.broker.Disconnect()
		}
		f.finish()
		require.ElementsMatch(t, ids(msgs(300)), f.inbox.committed())
	})
}

// altered is a source whose streams are altered.
type altered struct {
	consumer.Source
	alter func(consumer.Stream) consumer.Stream
	err   error // what Run returns at last
}

func (s altered) Run(ctx context.Context, serve func(context.Context, consumer.Stream) error) error {
	err := s.Source.Run(ctx, func(ctx context.Context, stream consumer.Stream) error {
		return serve(ctx, s.alter(stream))
	})
	return errors.Join(err, s.err)
}

type deafStream struct {
	consumer.Stream
	ack func(ctx context.Context) error
}

func (s deafStream) Ack(ctx context.Context, _ ...*message) error { return s.ack(ctx) }

func TestAckErrorIsNotFatal(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.cfg.Source = altered{Source: f.broker, alter: func(s consumer.Stream) consumer.Stream {
			return deafStream{s, func(context.Context) error { return io.ErrClosedPipe }}
		}}
		f.broker.Publish(keyed("k", "a"), keyed("k", "b"))
		f.start()
		require.Equal(t, []string{"a", "b"}, f.inbox.committed())
		require.Zero(t, f.runner.Health().Streams[0].Held)
		require.NoError(t, f.end())
		require.Equal(t, []string{"INFO consumer started", "INFO consumer stopped"}, f.log.loud())
		require.Len(t, f.log.with("message settled, and its acknowledgement lost"), 2)
	})
}

func TestAckTimeout(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.cfg.AckTimeout = time.Second
		var waits list[time.Duration]
		f.cfg.Source = altered{Source: f.broker, alter: func(s consumer.Stream) consumer.Stream {
			return deafStream{s, func(ctx context.Context) error {
				began := time.Now()
				<-ctx.Done()
				waits.add(time.Since(began))
				return ctx.Err()
			}}
		}}
		f.broker.Publish(msg("a"))
		f.start()
		advance(2 * time.Second)
		require.Equal(t, []time.Duration{time.Second}, waits.all())
	})
}

type brokenStream struct{ consumer.Stream }

func (brokenStream) Next(context.Context, int) ([]*message, error) { return nil, io.ErrUnexpectedEOF }

// An error of Next ends the stream, and not the runner.
func TestNextError(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		streams := 0
		f.cfg.Source = altered{Source: f.broker, alter: func(s consumer.Stream) consumer.Stream {
			if streams++; streams == 1 {
				return brokenStream{s}
			}
			return s
		}}
		f.broker.Publish(msg("a"))
		f.start()
		f.finish()
		lines := f.log.with("stream lost")
		require.Len(t, lines, 1)
		require.Equal(t, "unexpected EOF", lines[0]["error"])
		require.Equal(t, "memory/0", lines[0]["ackafter.stream"])
		require.Equal(t, []string{"a"}, f.inbox.committed())
	})
}

// lastWords is a stream whose Next returns its messages together with the end.
type lastWords struct{ consumer.Stream }

func (s lastWords) Next(ctx context.Context, limit int) ([]*message, error) {
	ms, err := s.Stream.Next(ctx, limit)
	return ms, errors.Join(err, io.EOF)
}

func TestMessagesThatComeWithTheEndAreNotLost(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		streams := 0
		f.cfg.Source = altered{Source: f.broker, alter: func(s consumer.Stream) consumer.Stream {
			if streams++; streams == 1 {
				return lastWords{s}
			}
			return s
		}}
		f.broker.Publish(msg("a"))
		f.start()
		f.finish()
		require.Equal(t, []string{"a"}, f.inbox.committed())
	})
}

func TestSourceErrorEndsRun(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.cfg.Source = altered{
			Source: f.broker, err: io.ErrUnexpectedEOF,
			alter: func(s consumer.Stream) consumer.Stream { return s },
		}
		f.start()
		require.ErrorIs(t, f.end(), io.ErrUnexpectedEOF)
	})
}

// A source may return its context's error once that has ended.
func TestCancelledSourceIsNoError(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.cfg.Source = altered{
			Source: f.broker, err: context.Canceled,
			alter: func(s consumer.Stream) consumer.Stream { return s },
		}
		f.start()
		require.NoError(t, f.end())
	})
}
