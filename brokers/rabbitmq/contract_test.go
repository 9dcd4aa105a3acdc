package rabbitmq_test

import (
	"context"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/ackafter/ackafter/brokers/brokertest"
	"github.com/ackafter/ackafter/brokers/rabbitmq"
	"github.com/ackafter/ackafter/consumer"
)

func TestContract(t *testing.T) {
	for _, kind := range []string{amqp.QueueTypeClassic, amqp.QueueTypeQuorum} {
		t.Run(kind, func(t *testing.T) {
			url := brokerURL(t)
			brokertest.Run(t, func(t *testing.T) brokertest.Harness {
				return harness(t, url, amqp.Table{amqp.QueueTypeArg: kind})
			})
		})
	}
}

func harness(t *testing.T, url string, args amqp.Table) brokertest.Harness {
	const keyHeader = "the-key"
	c := newClient(t, url, args)
	p, proxied := newProxy(t, url)
	return brokertest.Harness{
		Source: newSource(t, rabbitmq.Config{
			URL:        proxied,
			Queue:      c.queue,
			Prefetch:   20,
			BackoffMin: time.Millisecond,
			Key: func(d *amqp.Delivery) []byte {
				key, _ := d.Headers[keyHeader].([]byte)
				return key
			},
		}),
		Publish: func(ctx context.Context, ms ...*consumer.Message) error {
			ps := make([]amqp.Publishing, len(ms))
			for i, m := range ms {
				ps[i] = publishing(m)
				ps[i].Headers[keyHeader] = m.Key
			}
			return c.publish(ctx, ps...)
		},
		Disconnect: func(context.Context) error {
			p.cut()
			return nil
		},
		Waiting: func(context.Context) (int, error) { return c.waiting() },
		Bound:   20,
		Features: brokertest.Features{
			ID: true, Type: true, Headers: true, Redelivered: true, SingleAck: true, Time: time.Second,
		},
	}
}

func publishing(m *consumer.Message) amqp.Publishing {
	p := amqp.Publishing{
		MessageId: m.ID,
		Type:      m.Type,
		Timestamp: m.Time,
		Body:      m.Body,
		Headers:   amqp.Table{},
	}
	for _, h := range m.Headers {
		p.Headers[h.Key] = h.Value
	}
	return p
}
