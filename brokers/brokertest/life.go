package brokertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ackafter/ackafter/consumer"
)

func testServeError(t *testing.T, h Harness) {
	failure := errors.New("serve has failed")
	h.publish(t, numbered(1)...)
	w := startWith(t, h, func(ctx context.Context, s consumer.Stream) error {
		if _, err := s.Next(ctx, 1); err != nil {
			return endOf(ctx, s, err)
		}
		return failure
	})
	await(t, w.done, "Source.Run must end when a serve returns an error, see consumer.Source")
	if !errors.Is(w.err, failure) {
		t.Errorf("Source.Run must return the error of serve, see consumer.Source; it returned: %v", w.err)
	}
	w = start(t, h)
	w.take(1)
	w.stop()
}

func testServeLeaves(t *testing.T, h Harness) {
	h.publish(t, numbered(1)...)
	served := make(chan struct{}, 10)
	w := startWith(t, h, func(ctx context.Context, s consumer.Stream) error {
		if _, err := s.Next(ctx, 1); err != nil {
			return endOf(ctx, s, err)
		}
		select {
		case served <- struct{}{}:
		default: // enough is known
			<-ctx.Done()
		}
		return nil
	})
	for range 3 {
		receive(t, served, "when serve gives a stream up, another must follow, and deliver what is not acknowledged, see consumer.Source")
	}
	w.stop()
}

func testLost(t *testing.T, h Harness) {
	begun, ended := make(chan struct{}, 10), make(chan struct{})
	h.publish(t, numbered(1)...)
	w := startWith(t, h, func(ctx context.Context, s consumer.Stream) error {
		if _, err := s.Next(ctx, 1); err != nil {
			return endOf(ctx, s, err)
		}
		begun <- struct{}{}
		<-ctx.Done()
		select {
		case <-ended:
		default:
			close(ended)
		}
		return nil
	})
	receive(t, begun, "a message must be delivered")
	h.disconnect(t)
	await(t, ended, "the context of serve must end when its stream is lost, see consumer.Stream")
	receive(t, begun, "the message must be delivered again, on a new stream, see consumer.Source")
	w.stop()
}

func testEnd(t *testing.T, h Harness) {
	for range 3 { // Run may be called again
		w := start(t, h)
		h.publish(t, text("body"))
		d := w.next()
		ack(t, d)
		w.stop()
		ctx, cancel := limited(t)
		if err := d.stream.Ack(ctx, d.Message); err == nil {
			t.Error("Stream.Ack must return an error once the stream has ended, see consumer.Stream")
		}
		if _, err := d.stream.Next(ctx, 1); err == nil || ctx.Err() != nil {
			t.Errorf("Stream.Next must return io.EOF once the stream has ended, see consumer.Stream: %v", err)
		}
		cancel()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.Source.Run(ctx, func(context.Context, consumer.Stream) error { return nil }); err != nil {
		t.Errorf("Source.Run must return nil when its context has ended before, see consumer.Source: %v", err)
	}
}

func testHealth(t *testing.T, h Harness) {
	r, ok := h.Source.(consumer.HealthReporter)
	if !ok {
		return // there is nothing to keep
	}
	if r.Health() == nil {
		t.Error("Health must return an error before Run, see consumer.HealthReporter")
	}
	h.publish(t, text("body"))
	w := start(t, h)
	d := w.next()
	if err := r.Health(); err != nil {
		t.Errorf("Health must return nil while messages are delivered: %v", err)
	}
	ack(t, d)
	h.disconnect(t)
	await(t, d.ended, "the context of serve must end when its stream is lost, see consumer.Stream")
	h.publish(t, text("body"))
	ack(t, w.next())
	deadline := time.Now().Add(Limit)
	for r.Health() != nil && time.Now().Before(deadline) {
		h.publish(t, text("body"))
		ack(t, w.next())
	}
	if err := r.Health(); err != nil {
		t.Errorf("Health must return nil once the source is connected again: %v", err)
	}
	w.stop()
	if r.Health() == nil {
		t.Error("Health must return an error after Run, see consumer.HealthReporter")
	}
}
