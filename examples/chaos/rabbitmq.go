package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/ackafter/ackafter/brokers/rabbitmq"
	"github.com/ackafter/ackafter/consumer"
)

type rabbitMQ struct{}

func (rabbitMQ) variable() string { return "AMQP_URL" }

// rabbitPrefetch is small, so that every worker gets messages from each round.
const rabbitPrefetch = 16

func (rabbitMQ) source(url, queue string, maxBatch int) (consumer.Source, error) {
	return rabbitmq.New(rabbitmq.Config{URL: url, Queue: queue, Prefetch: max(rabbitPrefetch, maxBatch)})
}

func (rabbitMQ) messageID(m *consumer.Message) (string, error) { return consumer.BrokerID(m) }

// rabbitQueue is a durable queue, and a channel in confirm mode to publish to
// it.
type rabbitQueue struct {
	url, name string
	conn      *amqp.Connection
	ch        *amqp.Channel
	returned  atomic.Int64 // messages that the broker could not route
}

func (rabbitMQ) open(ctx context.Context, url, name string) (queue, error) {
	q := &rabbitQueue{url: url, name: name}
	var err error
	if q.conn, q.ch, err = dialRabbit(ctx, url); err != nil {
		return nil, err
	}
	// Classic: newer quorum queues drop a message after 20 deliveries.
	args := amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeClassic}
	if _, err := q.ch.QueueDeclare(name, true, false, false, false, args); err != nil {
		return nil, fmt.Errorf("declare the queue: %w", err)
	}
	returns := q.ch.NotifyReturn(make(chan amqp.Return, 1))
	go func() { // until the channel closes
		for range returns {
			q.returned.Add(1)
		}
	}()
	return q, q.ch.Confirm(false)
}

// dialRabbit opens a connection that ctx ends. The client itself knows no
// limits once it is connected: on a socket that is blocked it waits for ever.
func dialRabbit(ctx context.Context, url string) (*amqp.Connection, *amqp.Channel, error) {
	dial := amqp.DefaultDial(10 * time.Second)
	conn, err := amqp.DialConfig(url, amqp.Config{Dial: func(network, addr string) (net.Conn, error) {
		socket, err := dial(network, addr)
		if err == nil {
			context.AfterFunc(ctx, func() { _ = socket.Close() })
		}
		return socket, err
	}})
	if err != nil {
		return nil, nil, fmt.Errorf("connect to RabbitMQ: %w", err)
	}
	ch, err := conn.Channel()
	if err != nil {
		return nil, nil, fmt.Errorf("open a channel: %w", err)
	}
	return conn, ch, nil
}

func (q *rabbitQueue) publish(ctx context.Context, orders []order) error {
	confirmations := make([]*amqp.DeferredConfirmation, len(orders))
	for i, o := range orders {
		body, err := json.Marshal(o)
		if err != nil {
			return err
		}
		confirmations[i], err = q.ch.PublishWithDeferredConfirmWithContext(ctx, "", q.name, true, false, amqp.Publishing{
			MessageId: o.ID, ContentType: "application/json", DeliveryMode: amqp.Persistent, Timestamp: time.Now(), Body: body,
		})
		if err != nil {
			return fmt.Errorf("publish %s: %w", o.ID, err)
		}
	}
	for i, c := range confirmations {
		if acked, err := c.WaitContext(ctx); err != nil || !acked {
			return errors.Join(fmt.Errorf("the broker did not confirm %s", orders[i].ID), err)
		}
	}
	if n := q.returned.Load(); n > 0 { // a return comes before its confirmation
		return fmt.Errorf("the broker returned %d messages", n)
	}
	return nil
}

func (q *rabbitQueue) state() (ready, consumers int, err error) {
	s, err := q.ch.QueueDeclarePassive(q.name, true, false, false, false, nil)
	if err != nil {
		return 0, 0, fmt.Errorf("look at the queue: %w", err)
	}
	return s.Messages, s.Consumers, nil
}

func (q *rabbitQueue) delete(ctx context.Context) error {
	conn, ch, err := dialRabbit(ctx, q.url)
	if err != nil {
		return err
	}
	_ = q.conn.Close() // perhaps it is closed already
	_, err = ch.QueueDelete(q.name, false, false, false)
	return errors.Join(err, conn.Close())
}
