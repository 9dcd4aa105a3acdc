package consumer_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/ackafter/ackafter/brokers/memory"
	"github.com/ackafter/ackafter/consumer"
)

// What is set aside for good goes to the dead letters, and runs when it is sent
// back. In a worker they come from rabbitmq.NewDeadLetter or kafka.NewDeadLetter.
func ExampleDeadLetter() {
	broker, dead := memory.New(), memory.New()
	cfg := exampleConfig(broker)
	cfg.DeadLetter = dead.DeadLetter()
	cfg.Handler = consumer.HandlerFunc[*Tx](func(ctx context.Context, tx *Tx, m *consumer.Message) error {
		return consumer.Permanent(errors.New("no such account"))
	})
	runner, err := consumer.New(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	broker.Publish(&consumer.Message{ID: "o-1", Body: []byte("first order")})
	if err := runUntilDrained(broker, runner); err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	_ = dead.Run(ctx, func(ctx context.Context, s consumer.Stream) error {
		defer cancel()
		ms, err := s.Next(ctx, 1)
		if err != nil {
			return err
		}
		fmt.Printf("%s: %s, %s\n", ms[0].ID, ms[0].Headers.Get(consumer.HeaderReason), ms[0].Headers.Get(consumer.HeaderError))
		return s.Ack(ctx, ms...)
	})
	// Output: o-1: permanent, permanent: no such account
}
