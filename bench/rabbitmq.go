package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/ackafter/ackafter/brokers/rabbitmq"
	"github.com/ackafter/ackafter/consumer"
)

type rabbitMQ struct{ url string }

func newRabbitMQ() (broker, error) {
	url := os.Getenv("AMQP_URL")
	if url == "" {
		return nil, errors.New("AMQP_URL is not set")
	}
	return rabbitMQ{url}, nil
}

// do runs f on a channel of its own.
func (r rabbitMQ) do(f func(*amqp.Channel) error) error {
	conn, err := amqp.Dial(r.url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	return f(ch)
}

func (r rabbitMQ) create(_ context.Context, queue string, _ int) error {
	return r.do(func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(queue, true, false, false, false, nil)
		return err
	})
}

func (r rabbitMQ) delete(_ context.Context, queue string) error {
	return r.do(func(ch *amqp.Channel) error {
		_, err := ch.QueueDelete(queue, false, false, false)
		return err
	})
}

func (r rabbitMQ) version(context.Context) (string, error) {
	conn, err := amqp.Dial(r.url)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	return fmt.Sprintf("RabbitMQ %v", conn.Properties["version"]), nil
}

func (r rabbitMQ) publish(ctx context.Context, queue string, orders []order) error {
	return r.do(func(ch *amqp.Channel) error {
		if err := ch.Confirm(false); err != nil {
			return err
		}
		confirms := make([]*amqp.DeferredConfirmation, 0, len(orders))
		for _, o := range orders {
			c, err := ch.PublishWithDeferredConfirmWithContext(ctx, "", queue, false, false, amqp.Publishing{
				DeliveryMode: amqp.Persistent, MessageId: o.ID, CorrelationId: o.key(), ContentType: "application/json", Body: o.body()})
			if err != nil {
				return err
			}
			confirms = append(confirms, c)
		}
		for _, c := range confirms {
			if ok, err := c.WaitContext(ctx); err != nil || !ok {
				return errors.Join(errors.New("a message was not confirmed"), err)
			}
		}
		return nil
	})
}

func (r rabbitMQ) source(queue string) (consumer.Source, consumer.IDFunc, error) {
	s, err := rabbitmq.New(rabbitmq.Config{URL: r.url, Queue: queue, Prefetch: prefetch,
		Key: func(d *amqp.Delivery) []byte { return []byte(d.CorrelationId) }})
	return s, nil, err
}

// rabbitFeed is a channel of its own, so that multiple is safe.
type rabbitFeed struct {
	conn  *amqp.Connection
	ready chan delivery
}

func (r rabbitMQ) feeds(_ context.Context, queue string, workers int) ([]feed, error) {
	var feeds []feed
	for range workers {
		conn, err := amqp.Dial(r.url)
		if err != nil {
			return nil, err
		}
		ch, err := conn.Channel()
		if err != nil {
			return nil, err
		}
		if err := ch.Qos(prefetch/workers, 0, false); err != nil {
			return nil, err
		}
		deliveries, err := ch.Consume(queue, "", false, false, false, false, nil)
		if err != nil {
			return nil, err
		}
		f := &rabbitFeed{conn, make(chan delivery, prefetch)}
		go func() { // the client's channel holds nothing
			defer close(f.ready)
			for d := range deliveries {
				f.ready <- delivery{d.Body, d}
			}
		}()
		feeds = append(feeds, f)
	}
	return feeds, nil
}

func (f *rabbitFeed) messages() <-chan delivery { return f.ready }

func (f *rabbitFeed) ack(_ context.Context, last delivery, several bool) error {
	d := last.raw.(amqp.Delivery)
	return d.Ack(several)
}

func (f *rabbitFeed) close() { _ = f.conn.Close() }

func (r rabbitMQ) watermill(ctx context.Context, queue string, workers int, handle func(context.Context, []byte) error) error {
	cfg := wamqp.NewDurableQueueConfig(r.url)
	cfg.Consume.Qos.PrefetchCount = prefetch / workers
	return runRouter(ctx, workers, func(i int, router *message.Router) error {
		sub, err := wamqp.NewSubscriber(cfg, watermill.NopLogger{})
		if err != nil {
			return err
		}
		addHandler(router, "h"+strconv.Itoa(i), queue, sub, handle)
		return nil
	})
}

const closeTimeout = 10 * time.Second
