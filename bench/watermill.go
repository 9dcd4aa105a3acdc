package main

import (
	"context"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
)

// runRouter runs a Watermill router with as many subscribers as there are
// workers: each handles one message at a time.
func runRouter(ctx context.Context, workers int, add func(i int, r *message.Router) error) error {
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: closeTimeout}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	for i := range workers {
		if err := add(i, router); err != nil {
			return err
		}
	}
	return router.Run(ctx)
}

func addHandler(router *message.Router, name, topic string, sub message.Subscriber, handle func(context.Context, []byte) error) {
	router.AddConsumerHandler(name, topic, sub, func(m *message.Message) error {
		return handle(m.Context(), m.Payload)
	})
}
