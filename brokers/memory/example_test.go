package memory_test

import (
	"context"
	"fmt"
	"time"

	"github.com/ackafter/ackafter/brokers/memory"
	"github.com/ackafter/ackafter/consumer"
)

// A test publishes, runs what it tests, and waits until everything has been
// acknowledged. A consumer.Runner takes the place of serve here.
func Example() {
	broker := memory.New()
	broker.Publish(
		&consumer.Message{ID: "1", Body: []byte("hello")},
		&consumer.Message{ID: "2", Body: []byte("world")},
	)

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	done := make(chan error, 1)
	go func() {
		done <- broker.Run(ctx, func(ctx context.Context, s consumer.Stream) error {
			for {
				ms, err := s.Next(ctx, 1)
				if err != nil {
					return nil // the stream or the context has ended
				}
				fmt.Printf("%s: %s\n", ms[0].Position, ms[0].Body)
				if err := s.Ack(ctx, ms...); err != nil {
					return err
				}
			}
		})
	}()

	fmt.Println(broker.Drained(ctx))
	cancel()
	fmt.Println(<-done)
	// Output:
	// memory/0@0: hello
	// memory/0@1: world
	// <nil>
	// <nil>
}
