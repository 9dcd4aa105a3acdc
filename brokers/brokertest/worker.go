package brokertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/ackafter/ackafter/consumer"
)

// delivery is a message with the stream that delivered it.
type delivery struct {
	*consumer.Message
	stream consumer.Stream
	ended  <-chan struct{} // closed when serve's context has ended
}

// worker runs a source and passes on what its streams deliver.
type worker struct {
	t      *testing.T
	cancel context.CancelFunc
	got    chan delivery
	done   chan struct{} // closed when Run has returned
	err    error         // what it returned
}

// start runs the source with a serve that passes on every message.
func start(t *testing.T, h Harness) *worker {
	t.Helper()
	w := &worker{got: make(chan delivery)}
	w.run(t, h, w.serve)
	return w
}

// startWith runs the source with a serve of the test's own.
func startWith(t *testing.T, h Harness, serve func(context.Context, consumer.Stream) error) *worker {
	t.Helper()
	w := &worker{}
	w.run(t, h, serve)
	return w
}

func (w *worker) run(t *testing.T, h Harness, serve func(context.Context, consumer.Stream) error) {
	ctx, cancel := context.WithCancel(context.Background())
	w.t, w.cancel, w.done = t, cancel, make(chan struct{})
	go func() {
		defer close(w.done)
		w.err = h.Source.Run(ctx, serve)
	}()
	t.Cleanup(func() {
		cancel()
		await(t, w.done, "Source.Run must return after its context has ended and every serve has returned, see consumer.Source")
	})
}

func (w *worker) serve(ctx context.Context, s consumer.Stream) error {
	for {
		ms, err := s.Next(ctx, 10)
		if err != nil {
			return endOf(ctx, s, err)
		}
		for _, m := range ms {
			select {
			case w.got <- delivery{m, s, ctx.Done()}:
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// endOf returns nil for the errors with which Next may end.
func endOf(ctx context.Context, s consumer.Stream, err error) error {
	if errors.Is(err, io.EOF) || ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return fmt.Errorf("stream %q: Next must return io.EOF at the end, or its context's error, see consumer.Stream; it returned: %w", s.Name(), err)
}

// next returns the next delivery.
func (w *worker) next() delivery {
	w.t.Helper()
	select {
	case d := <-w.got:
		return d
	case <-w.done:
		w.t.Fatalf("Source.Run must serve until its context ends, see consumer.Source; it returned: %v", w.err)
	case <-time.After(Limit):
		w.t.Fatalf("no message was delivered within %v", Limit)
	}
	panic("unreachable")
}

// take returns the next n deliveries.
func (w *worker) take(n int) []delivery {
	w.t.Helper()
	ds := make([]delivery, n)
	for i := range ds {
		ds[i] = w.next()
	}
	return ds
}

// stop ends Run, which must return nil.
func (w *worker) stop() {
	w.t.Helper()
	w.cancel()
	await(w.t, w.done, "Source.Run must return after its context has ended and every serve has returned, see consumer.Source")
	if w.err != nil {
		w.t.Fatalf("Source.Run must return nil after its context has ended, see consumer.Source; it returned: %v", w.err)
	}
}

// await waits for c to be closed.
func await(t *testing.T, c <-chan struct{}, must string) {
	t.Helper()
	receive(t, c, must)
}

// receive waits for a value from c.
func receive[T any](t *testing.T, c <-chan T, must string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(Limit):
		t.Fatalf("not within %v: %s", Limit, must)
	}
	panic("unreachable")
}

// ack acknowledges d on its own stream.
func ack(t *testing.T, d delivery) {
	t.Helper()
	ctx, cancel := limited(t)
	defer cancel()
	if err := d.stream.Ack(ctx, d.Message); err != nil {
		t.Fatalf("Stream.Ack must acknowledge a message of a stream that is alive; %s: %v", d.Position, err)
	}
}

func limited(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), Limit)
}

func (h Harness) publish(t *testing.T, ms ...*consumer.Message) {
	t.Helper()
	ctx, cancel := limited(t)
	defer cancel()
	if err := h.Publish(ctx, ms...); err != nil {
		t.Fatalf("Harness.Publish: %v", err)
	}
}

func (h Harness) disconnect(t *testing.T) {
	t.Helper()
	ctx, cancel := limited(t)
	defer cancel()
	if err := h.Disconnect(ctx); err != nil {
		t.Fatalf("Harness.Disconnect: %v", err)
	}
}

// numbered returns n messages with one key, and so for one stream.
func numbered(n int) []*consumer.Message {
	ms := make([]*consumer.Message, n)
	for i := range ms {
		ms[i] = text(fmt.Sprintf("message %d", i))
	}
	return ms
}

// text returns a message with the key of numbered.
func text(body string) *consumer.Message {
	return &consumer.Message{ID: body, Key: []byte("key"), Body: []byte(body)}
}

func bodies(ds []delivery) []string {
	all := make([]string, len(ds))
	for i, d := range ds {
		all[i] = string(d.Body)
	}
	return all
}
