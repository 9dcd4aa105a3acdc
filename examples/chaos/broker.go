package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ackafter/ackafter/consumer"
)

// broker is what the drill needs of a broker; each has a file of its own.
type broker interface {
	// variable names the environment variable with the broker's address.
	variable() string
	// open creates an empty queue of this name. ctx limits everything that is
	// done with it, except delete.
	open(ctx context.Context, url, queue string) (queue, error)
	// source is what a worker reads, whose batches have so many messages.
	source(url, queue string, maxBatch int) (consumer.Source, error)
	// messageID is where the queue's publish puts the id of an order.
	messageID(*consumer.Message) (string, error)
}

// queue is the parent's side of a queue.
type queue interface {
	// publish returns once the broker has confirmed every order.
	publish(ctx context.Context, orders []order) error
	// state returns how many messages wait to be delivered, and how many
	// consumers there are. Without any, nothing is unacknowledged.
	state() (ready, consumers int, err error)
	// delete removes the queue, whatever has become of the connection, and
	// closes that.
	delete(ctx context.Context) error
}

var brokers = map[string]broker{"kafka": apacheKafka{}, "rabbitmq": rabbitMQ{}}

func brokerNamed(name string) (broker, error) {
	b, ok := brokers[name]
	if !ok {
		return nil, fmt.Errorf("unknown broker %q: there is %s", name, brokerNames())
	}
	return b, nil
}

func brokerNames() string {
	return strings.Join(slices.Sorted(maps.Keys(brokers)), ", ")
}
