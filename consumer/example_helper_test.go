package consumer_test

import (
	"context"
	"log/slog"

	"github.com/ackafter/ackafter/brokers/memory"
	"github.com/ackafter/ackafter/consumer"
)

var quietly = slog.New(slog.DiscardHandler)

// runUntilDrained runs a runner until everything published has been
// acknowledged, or until it fails.
func runUntilDrained(broker *memory.Broker, runner consumer.Runnable) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		defer cancel()
		_ = broker.Drained(ctx)
	}()
	return runner.Run(ctx)
}

// exampleConfig is what the examples on handlers have in common.
func exampleConfig(broker *memory.Broker) consumer.Config[*Tx] {
	return consumer.Config[*Tx]{Subscriber: "billing", Source: broker, Inbox: newInbox(), Logger: quietly}
}
