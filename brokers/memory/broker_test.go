package memory_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/ackafter/ackafter/brokers/memory"
	"github.com/ackafter/ackafter/consumer"
)

const limit = 10 * time.Second

func TestDrained(t *testing.T) {
	b := memory.New()
	if err := b.Drained(t.Context()); err != nil {
		t.Errorf("an empty broker is drained: %v", err)
	}
	b.Publish(&consumer.Message{}, &consumer.Message{})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Drained(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Drained with two messages: %v", err)
	}
	run(t, b, func(ctx context.Context, s consumer.Stream) error { return ackAll(ctx, s) })
	wait(t, b)
}

func TestPublishCopies(t *testing.T) {
	b := memory.New()
	m := &consumer.Message{
		Key: []byte("key"), Body: []byte("body"),
		Headers: consumer.Headers{{Key: "h", Value: []byte("v")}},
	}
	b.Publish(m)
	m.Key[0], m.Body[0], m.Headers[0].Value[0] = 'X', 'X', 'X'
	run(t, b, func(ctx context.Context, s consumer.Stream) error {
		ms, err := s.Next(ctx, 1)
		if err != nil {
			return err
		}
		got := ms[0]
		if string(got.Key) != "key" || string(got.Body) != "body" || got.Headers.Get("h") != "v" {
			t.Errorf("got %+v", got)
		}
		if got.Position != "memory/0@0" || s.Name() != "memory/0" {
			t.Errorf("got position %q on %q", got.Position, s.Name())
		}
		if err := s.Ack(ctx, &consumer.Message{}); err == nil {
			t.Error("a message from elsewhere was acknowledged")
		}
		if err := s.Ack(ctx, got, got); err != nil {
			t.Error(err)
		}
		return ackAll(ctx, s)
	})
	wait(t, b)
}

// One key stays on one stream; messages without a key are spread evenly.
func TestStreams(t *testing.T) {
	const streams, messages = 4, 400
	b := memory.NewWithConfig(memory.Config{Streams: streams})
	for i := range messages {
		b.Publish(&consumer.Message{Key: []byte(strconv.Itoa(i % 10))}, &consumer.Message{})
	}
	type seen struct{ key, stream string }
	all := make(chan seen, 2*messages)
	run(t, b, func(ctx context.Context, s consumer.Stream) error {
		for {
			ms, err := s.Next(ctx, 7)
			if err != nil {
				return nil
			}
			for _, m := range ms {
				all <- seen{string(m.Key), s.Name()}
			}
			if err := s.Ack(ctx, ms...); err != nil {
				return err
			}
		}
	})
	wait(t, b)
	close(all)
	streamOf, keyless := map[string]string{}, map[string]int{}
	for m := range all {
		if m.key == "" {
			keyless[m.stream]++
		} else if s, found := streamOf[m.key]; found && s != m.stream {
			t.Fatalf("the key %s is on %s and %s", m.key, s, m.stream)
		} else {
			streamOf[m.key] = m.stream
		}
	}
	for s, n := range keyless {
		if n != messages/streams || len(keyless) != streams {
			t.Errorf("%d messages without a key on %s, of %d streams", n, s, len(keyless))
		}
	}
}

// A second Run stands by, and takes over at once while the first is still
// busy with what it has lost.
func TestTakeover(t *testing.T) {
	b := memory.New()
	b.Publish(&consumer.Message{Body: []byte("body")})
	held, finish := make(chan struct{}), make(chan struct{})
	run(t, b, func(ctx context.Context, s consumer.Stream) error {
		ms, err := s.Next(ctx, 1)
		if err != nil {
			return nil
		}
		close(held)
		<-finish
		if err := s.Ack(context.Background(), ms...); err == nil {
			t.Error("the loser's acknowledgement was accepted")
		}
		<-ctx.Done()
		return nil
	})
	<-held
	run(t, b, ackAll)
	b.Disconnect()
	wait(t, b)
	close(finish)
}

// Only what was not acknowledged comes again, however often that happens.
func TestGapAndDisconnects(t *testing.T) {
	b := memory.New()
	for i := range 1000 {
		b.Publish(&consumer.Message{Body: []byte(strconv.Itoa(i))})
	}
	counts := map[string]int{}
	run(t, b, func(ctx context.Context, s consumer.Stream) error {
		for {
			ms, err := s.Next(ctx, 10)
			if err != nil {
				return nil
			}
			for i, m := range ms {
				counts[string(m.Body)]++
				if i == 0 && counts[string(m.Body)] < 3 {
					continue // a gap
				}
				if err := s.Ack(ctx, m); err != nil {
					return nil
				}
			}
			if slices.ContainsFunc(ms, func(m *consumer.Message) bool { return string(m.Body) == "990" }) {
				b.Disconnect()
			}
		}
	})
	wait(t, b)
	for body, want := range map[string]int{"0": 3, "10": 2, "1": 1, "999": 1} {
		if counts[body] != want {
			t.Errorf("%s came %d times, want %d", body, counts[body], want)
		}
	}
}

func ackAll(ctx context.Context, s consumer.Stream) error {
	for {
		ms, err := s.Next(ctx, 100)
		if err != nil {
			return nil
		}
		if err := s.Ack(ctx, ms...); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// run runs b until the end of the test.
func run(t testing.TB, b *memory.Broker, serve func(context.Context, consumer.Stream) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx, serve) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func wait(t testing.TB, b *memory.Broker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if err := b.Drained(ctx); err != nil {
		t.Fatal(err)
	}
}

func BenchmarkDelivery(b *testing.B) {
	for _, batch := range []int{1, 100} {
		b.Run(fmt.Sprintf("batch %d", batch), func(b *testing.B) {
			b.ReportAllocs()
			broker := memory.New()
			m := &consumer.Message{Key: []byte("key"), Body: []byte("body")}
			for range b.N {
				broker.Publish(m)
			}
			b.ResetTimer()
			run(b, broker, func(ctx context.Context, s consumer.Stream) error {
				for {
					ms, err := s.Next(ctx, batch)
					if err != nil {
						return nil
					}
					if err := s.Ack(ctx, ms...); err != nil {
						return err
					}
				}
			})
			if err := broker.Drained(b.Context()); err != nil {
				b.Fatal(err)
			}
		})
	}
}
