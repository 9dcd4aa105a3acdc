package main

import (
	"context"
	"errors"

	amqp "github.com/rabbitmq/amqp091-go"
	kafkago "github.com/segmentio/kafka-go"
)

// publisher publishes a few messages now and then, on one connection.
type publisher struct {
	publish func(ctx context.Context, orders []order) error
	close   func()
}

func openPublisher(b broker, queue string) (publisher, error) {
	switch b := b.(type) {
	case rabbitMQ:
		conn, err := amqp.Dial(b.url)
		if err != nil {
			return publisher{}, err
		}
		ch, err := conn.Channel()
		if err != nil {
			return publisher{}, err
		}
		return publisher{func(ctx context.Context, orders []order) error {
			for _, o := range orders {
				err := ch.PublishWithContext(ctx, "", queue, false, false, amqp.Publishing{
					DeliveryMode: amqp.Persistent, MessageId: o.ID, CorrelationId: o.key(), Body: o.body()})
				if err != nil {
					return err
				}
			}
			return nil
		}, func() { _ = conn.Close() }}, nil
	case apacheKafka:
		w := &kafkago.Writer{Addr: kafkago.TCP(b.brokers...), Topic: queue, RequiredAcks: kafkago.RequireAll,
			Balancer: &kafkago.Hash{}, BatchTimeout: 1, BatchSize: 100}
		return publisher{func(ctx context.Context, orders []order) error {
			ms := make([]kafkago.Message, len(orders))
			for i, o := range orders {
				ms[i] = kafkago.Message{Key: []byte(o.key()), Value: o.body(), Headers: []kafkago.Header{{Key: "message-id", Value: []byte(o.ID)}}}
			}
			return w.WriteMessages(ctx, ms...)
		}, func() { _ = w.Close() }}, nil
	}
	return publisher{}, errors.New("no such broker")
}
