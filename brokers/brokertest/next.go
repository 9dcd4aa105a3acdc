package brokertest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ackafter/ackafter/consumer"
)

func testNextBatch(t *testing.T, h Harness) {
	const most = 7
	sizes := make(chan int, 1000)
	w := startWith(t, h, func(ctx context.Context, s consumer.Stream) error {
		for {
			ms, err := s.Next(ctx, most)
			if err != nil {
				return endOf(ctx, s, err)
			}
			if err := s.Ack(ctx, ms...); err != nil && ctx.Err() == nil {
				return fmt.Errorf("Stream.Ack must accept all messages of one Next: %w", err)
			}
			sizes <- len(ms)
		}
	})
	// Messages may arrive one by one, so that several need not be waiting at
	// first; with a backlog they are soon.
	h.publish(t, numbered(500)...)
	largest := 0
	for received := 0; received < 500; {
		select {
		case n := <-sizes:
			if n < 1 || n > most {
				t.Fatalf("Stream.Next must return between 1 and max messages: got %d, max %d", n, most)
			}
			largest = max(largest, n)
			received += n
		case <-w.done:
			t.Fatalf("Source.Run returned: %v", w.err)
		case <-time.After(Limit):
			t.Fatalf("Stream.Next must return what is there and not wait for more: %d messages are missing", 500-received)
		}
	}
	if largest == 1 {
		t.Error("Stream.Next must add what is already there, up to max: 500 messages came one by one")
	}
	w.stop()
}

func testNextBlocks(t *testing.T, h Harness) {
	found := make(chan *consumer.Message, 1)
	early := make(chan error, 100)
	w := startWith(t, h, func(ctx context.Context, s consumer.Stream) error {
		brief, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		ms, err := s.Next(brief, 10)
		if err != nil && ctx.Err() == nil {
			early <- err
			ms, err = s.Next(ctx, 10)
		}
		if err != nil && ctx.Err() != nil {
			return nil // the stream has ended, perhaps while brief did
		}
		if err != nil {
			return endOf(ctx, s, err)
		}
		found <- ms[0]
		<-ctx.Done()
		return nil
	})
	select {
	case err := <-early:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Stream.Next must wait for the first message until its context ends, and return the context's error: %v", err)
		}
	case m := <-found:
		t.Fatalf("Stream.Next must wait for the first message: it returned %q, and nothing was published", m.Body)
	case <-time.After(Limit):
		t.Fatal("Stream.Next must return when its context ends")
	}
	h.publish(t, text("body"))
	select {
	case m := <-found:
		if string(m.Body) != "body" {
			t.Errorf("got the message %q", m.Body)
		}
	case <-time.After(Limit):
		t.Fatal("Stream.Next must return a message that arrives while it waits, also after an earlier call ended with its context")
	}
	w.stop()
}

func testBounded(t *testing.T, h Harness) {
	if h.Waiting == nil {
		t.Log("nothing to test: Harness.Waiting is nil")
		return
	}
	total := 4 * h.Bound
	h.publish(t, numbered(total)...)
	w := start(t, h)
	for acked := range total {
		d := w.next()
		ctx, cancel := limited(t)
		waiting, err := h.Waiting(ctx)
		cancel()
		if err != nil {
			t.Fatalf("Harness.Waiting: %v", err)
		}
		if held := total - acked - waiting; held > h.Bound {
			t.Fatalf("a source must leave the backlog in the broker: with %d messages acknowledged it holds %d, and %d is the bound", acked, held, h.Bound)
		}
		ack(t, d)
	}
	w.stop()
}
