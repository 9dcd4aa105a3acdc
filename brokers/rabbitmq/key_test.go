package rabbitmq_test

import (
	"context"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/ackafter/ackafter/brokers/rabbitmq"
	"github.com/ackafter/ackafter/consumer"
)

// A Key that panics stops this source, and not the process.
func TestKeyThatPanicsEndsRun(t *testing.T) {
	t.Parallel()
	c := newClient(t, brokerURL(t), nil)
	c.send("good", "bad")
	w := start(t, newSource(t, rabbitmq.Config{
		URL: brokerURL(t), Queue: c.queue,
		Key: func(d *amqp.Delivery) []byte {
			if string(d.Body) == "bad" {
				return []byte(d.Headers["customer"].(string))
			}
			return nil
		},
	}))
	w.want("good")
	err := <-w.done
	w.done <- nil
	if err == nil || !strings.Contains(err.Error(), "Config.Key panicked") {
		t.Errorf("Run returned %v", err)
	}
	eventually(t, "the message is back in its queue", func() bool {
		n, err := c.waiting()
		return err == nil && n == 1
	})
}

// Where there is an order to keep, the queue's next single active consumer must
// not begin before the one that stops has finished.
func TestSingleActiveConsumerIsFollowedOnlyWhenItHasFinished(t *testing.T) {
	for _, kind := range []string{amqp.QueueTypeClassic, amqp.QueueTypeQuorum} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			c := newClient(t, brokerURL(t), amqp.Table{amqp.QueueTypeArg: kind, "x-single-active-consumer": true})
			c.send("first", "second")
			config := rabbitmq.Config{
				URL: brokerURL(t), Queue: c.queue, Prefetch: 1,
				Key: func(*amqp.Delivery) []byte { return []byte("one") },
			}
			begun, finish := make(chan delivery), make(chan struct{})
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				ended <- newSource(t, config).Run(ctx, func(ctx context.Context, s consumer.Stream) error {
					ms, err := s.Next(ctx, 1)
					if err != nil {
						return err
					}
					begun <- delivery{ms[0], s}
					<-finish
					return nil
				})
			}()
			first := <-begun
			follower := start(t, newSource(t, config))
			eventually(t, "the follower is connected", func() bool { return follower.source.Health() == nil })
			stop()
			select {
			case d := <-follower.got:
				t.Errorf("%q was delivered while %q is not finished", d.Body, first.Body)
			case <-quiet(t, c):
			}
			first.ack(t)
			close(finish)
			if err := <-ended; err != nil {
				t.Error(err)
			}
			follower.want("second")
		})
	}
}

// quiet is closed when the broker has had the time to hand out what it would:
// it has answered so many requests since.
func quiet(t *testing.T, c *client) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 200 {
			if _, err := c.waiting(); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	return done
}
