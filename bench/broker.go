package main

import (
	"context"
	"fmt"

	"github.com/ackafter/ackafter/consumer"
)

// broker is a message broker with one queue at a time.
type broker interface {
	// create makes an empty queue.
	create(ctx context.Context, queue string, workers int) error
	// publish returns when the broker has confirmed all of it.
	publish(ctx context.Context, queue string, orders []order) error
	delete(ctx context.Context, queue string) error
	// version names the server, for people.
	version(ctx context.Context) (string, error)
	// source is what ours reads.
	source(queue string) (consumer.Source, consumer.IDFunc, error)
	// feeds are what the loops by hand read, one for each worker.
	feeds(ctx context.Context, queue string, workers int) ([]feed, error)
	// watermill runs handle for each message, until ctx ends.
	watermill(ctx context.Context, queue string, workers int, handle func(ctx context.Context, body []byte) error) error
}

// feed is the messages of one worker, as an expert's loop would read them:
// what has arrived waits in a channel.
type feed interface {
	messages() <-chan delivery
	// ack acknowledges everything up to last.
	ack(ctx context.Context, last delivery, several bool) error
	close()
}

type delivery struct {
	body []byte
	raw  any
}

// prefetch is how many messages RabbitMQ hands out, and a channel holds.
const prefetch = 1000

func openBroker(name string) (broker, error) {
	switch name {
	case "rabbitmq":
		return newRabbitMQ()
	case "kafka":
		return newKafka()
	}
	return nil, fmt.Errorf("there is no broker %q", name)
}

// next returns the first message, and what else is there up to limit.
func next(ctx context.Context, f feed, limit int, into []delivery) ([]delivery, error) {
	select {
	case d, ok := <-f.messages():
		if !ok {
			return nil, fmt.Errorf("the messages have ended")
		}
		into = append(into, d)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	for len(into) < limit {
		select {
		case d, ok := <-f.messages():
			if !ok {
				return into, nil
			}
			into = append(into, d)
		default:
			return into, nil
		}
	}
	return into, nil
}
