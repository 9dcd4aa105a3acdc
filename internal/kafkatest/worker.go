package kafkatest

import (
	"context"
	"testing"
	"time"

	"github.com/ackafter/ackafter/brokers/kafka"
	"github.com/ackafter/ackafter/consumer"
)

// Delivery is a message with the stream that delivered it.
type Delivery struct {
	*consumer.Message
	T      testing.TB
	Stream consumer.Stream
	Ended  <-chan struct{} // closed when serve's context has ended
}

// Ack acknowledges the message on its own stream.
func (d Delivery) Ack() {
	d.T.Helper()
	if err := d.Stream.Ack(context.Background(), d.Message); err != nil {
		d.T.Errorf("Ack %s: %v", d.Position, err)
	}
}

// Worker runs a source and passes on what it delivers.
type Worker struct {
	T      testing.TB
	Source *kafka.Source
	cancel context.CancelFunc
	got    chan Delivery
	done   chan error
}

// Start runs the source until the end of the test.
func Start(t testing.TB, c kafka.Config) *Worker {
	t.Helper()
	source, err := kafka.New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &Worker{T: t, Source: source, cancel: cancel, got: make(chan Delivery), done: make(chan error, 1)}
	go func() { w.done <- source.Run(ctx, w.serve) }()
	t.Cleanup(func() { w.cancel(); w.end() })
	return w
}

func (w *Worker) serve(ctx context.Context, s consumer.Stream) error {
	for {
		ms, err := s.Next(ctx, 10)
		if err != nil {
			return nil
		}
		for _, m := range ms {
			select {
			case w.got <- Delivery{m, w.T, s, ctx.Done()}:
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// Next returns the next delivery.
func (w *Worker) Next() Delivery {
	w.T.Helper()
	select {
	case d := <-w.got:
		return d
	case err := <-w.done:
		w.done <- err
		w.T.Fatalf("Run has returned: %v", err)
	case <-time.After(Limit):
		w.T.Fatalf("no message; health: %v", w.Source.Health())
	}
	panic("unreachable")
}

// Take returns the next n deliveries.
func (w *Worker) Take(n int) []Delivery {
	w.T.Helper()
	ds := make([]Delivery, n)
	for i := range ds {
		ds[i] = w.Next()
	}
	return ds
}

// Want takes the next messages, acknowledges them and compares their bodies.
func (w *Worker) Want(bodies ...string) {
	w.T.Helper()
	for _, body := range bodies {
		d := w.Next()
		if string(d.Body) != body {
			w.T.Fatalf("got %q at %s, want %q", d.Body, d.Position, body)
		}
		d.Ack()
	}
}

// Failed waits until Run has returned by itself, and returns its error.
func (w *Worker) Failed() error {
	w.T.Helper()
	err := w.end()
	if err == nil {
		w.T.Fatal("Run returned nil")
	}
	return err
}

// Stop ends Run, which must return nil. It may be called twice.
func (w *Worker) Stop() {
	w.T.Helper()
	w.cancel()
	if err := w.end(); err != nil {
		w.T.Errorf("Run: %v", err)
	}
}

func (w *Worker) end() error {
	w.T.Helper()
	for {
		select {
		case err := <-w.done:
			w.done <- err
			return err
		case <-w.got: // nobody wants it any more
		case <-time.After(Limit):
			w.T.Fatal("Run does not return")
		}
	}
}

// Eventually waits until ok returns true.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	timeout := time.After(Limit)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("never: %s", what)
		}
	}
}
