package rabbitmq_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/ackafter/ackafter/brokers/rabbitmq"
	"github.com/ackafter/ackafter/consumer"
)

func TestQueueDeletedAndMadeAgain(t *testing.T) {
	t.Parallel()
	url := brokerURL(t)
	c := newClient(t, url, nil)
	log := &logBuffer{}
	s := newSource(t, rabbitmq.Config{
		URL: url, Queue: c.queue, BackoffMin: time.Millisecond, BackoffMax: 20 * time.Millisecond, Logger: log.logger(),
	})
	w := start(t, s)
	c.send("one")
	w.want("one")

	c.delete()
	eventually(t, "unhealthy, and saying why", func() bool {
		err := s.Health()
		return err != nil && strings.Contains(err.Error(), "does not exist in vhost")
	})
	c.declare(nil)
	c.send("two")
	w.want("two")
	if err := s.Health(); err != nil {
		t.Errorf("Health after the queue is back: %v", err)
	}
	w.stop()
	if lost, back := log.count("level=WARN"), log.count("level=INFO"); lost != 1 || back != 1 {
		t.Errorf("one line when the stream is lost and one when it is back, got %d and %d:\n%s", lost, back, log)
	}
	for _, attr := range []string{"messaging.system=rabbitmq", "messaging.destination.name=" + c.queue, "cancelled the consumer"} {
		if log.count(attr) == 0 {
			t.Errorf("the log does not say %q:\n%s", attr, log)
		}
	}
}

func TestDeclaredQueueIsMadeAgain(t *testing.T) {
	t.Parallel()
	url := brokerURL(t)
	c := newClient(t, url, nil)
	c.delete()
	log := &logBuffer{}
	s := newSource(t, rabbitmq.Config{
		URL: url, Queue: c.queue, BackoffMin: time.Millisecond, Logger: log.logger(), Declare: &rabbitmq.Topology{
			Type:     amqp.QueueTypeQuorum,
			Bindings: []rabbitmq.Binding{{Exchange: "amq.direct", Key: c.queue}},
		},
	})
	w := start(t, s)
	eventually(t, "consuming", func() bool { return s.Health() == nil })
	c.delete()
	eventually(t, "lost", func() bool { return s.Health() != nil || log.count("level=INFO") > 0 })
	eventually(t, "consuming again", func() bool { return s.Health() == nil })
	err := c.ch.Publish("amq.direct", c.queue, true, false, amqp.Publishing{Body: []byte("bound")})
	if err != nil {
		t.Fatal(err)
	}
	w.want("bound")
}

func TestConnectionCutWhileIdle(t *testing.T) {
	t.Parallel()
	url := brokerURL(t)
	c := newClient(t, url, nil)
	p, proxied := newProxy(t, url)
	w := start(t, newSource(t, rabbitmq.Config{URL: proxied, Queue: c.queue, BackoffMin: time.Millisecond}))
	for i := range 5 {
		p.cut()
		body := fmt.Sprint(i)
		c.send(body)
		d := w.next()
		for string(d.Body) != body { // the acknowledgement of an earlier one was lost
			if !d.Redelivered {
				t.Fatalf("got %q, want %q", d.Body, body)
			}
			d = w.next()
		}
		d.ack(t)
	}
}

// The broker closes the channel and leaves the connection, as it also does at
// its consumer_timeout.
func TestChannelClosedByBroker(t *testing.T) {
	t.Parallel()
	url := brokerURL(t)
	c := newClient(t, url, nil)
	dial, last := recordingDial()
	log := &logBuffer{}
	w := start(t, newSource(t, rabbitmq.Config{
		URL: url, Queue: c.queue, BackoffMin: time.Millisecond, Logger: log.logger(), AMQP: amqp.Config{Dial: dial},
	}))
	c.send("one")
	lost := w.next()
	// A method frame on channel 1: basic.ack of the delivery tag 99.
	ackOfUnknown := []byte{1, 0, 1, 0, 0, 0, 13, 0, 60, 0, 80, 0, 0, 0, 0, 0, 0, 0, 99, 0, 0xCE}
	if _, err := last().Write(ackOfUnknown); err != nil {
		t.Fatal(err)
	}
	again := w.next()
	if string(again.Body) != "one" || !again.Redelivered {
		t.Errorf("got %+v", again.Message)
	}
	if err := lost.stream.Ack(t.Context(), lost.Message); err == nil {
		t.Error("Ack on the stream that was lost")
	}
	again.ack(t)
	c.send("two")
	w.want("two")
	if log.count("unknown delivery tag 99") == 0 {
		t.Errorf("the log does not name the cause: %s", log)
	}
}

func TestRawCannotBeAcknowledged(t *testing.T) {
	t.Parallel()
	url := brokerURL(t)
	c := newClient(t, url, nil)
	c.send("one")
	log := &logBuffer{}
	w := start(t, newSource(t, rabbitmq.Config{URL: url, Queue: c.queue, Logger: log.logger()}))
	d := w.next()
	raw := d.Raw.(*amqp.Delivery)
	if raw.Ack(false) == nil || raw.Nack(false, true) == nil || raw.Reject(true) == nil {
		t.Error("Raw must refuse to be acknowledged before the commit")
	}
	d.ack(t)
	d.ack(t) // a second time must not be written: the channel would be closed
	c.send("two")
	w.want("two")
	w.stop()
	if log.String() != "" {
		t.Errorf("the stream was lost: %s", log)
	}
}

func TestForeignMessage(t *testing.T) {
	t.Parallel()
	url := brokerURL(t)
	c := newClient(t, url, nil)
	c.send("one")
	w := start(t, rabbitmq.Queue(url, c.queue))
	d := w.next()
	if err := d.stream.Ack(t.Context(), &consumer.Message{Position: "elsewhere"}); err == nil || !strings.Contains(err.Error(), "elsewhere") {
		t.Errorf("Ack of a message from elsewhere: %v", err)
	}
	d.ack(t)
}

func TestPrefetchBound(t *testing.T) {
	t.Parallel()
	const backlog, prefetch = 10_000, 100
	url := brokerURL(t)
	c := newClient(t, url, nil)
	c.sendAll(make([]amqp.Publishing, backlog)...)
	w := start(t, newSource(t, rabbitmq.Config{URL: url, Queue: c.queue, Prefetch: prefetch}))
	held := w.next()
	eventually(t, "the prefetch is used", func() bool { return must(t, c) <= backlog-prefetch })
	for range 50 {
		if waiting := must(t, c); waiting != backlog-prefetch {
			t.Fatalf("%d messages are outstanding, the prefetch is %d", backlog-waiting, prefetch)
		}
	}
	held.ack(t)
	eventually(t, "an acknowledgement makes room for one", func() bool { return must(t, c) == backlog-prefetch-1 })
}

// What was not begun goes back at once, also while a handler is still busy.
func TestShutdownHandsBackWhatWasNotBegun(t *testing.T) {
	t.Parallel()
	url := brokerURL(t)
	c := newClient(t, url, nil)
	c.send("begun", "a", "b", "c")
	begun, finish := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- rabbitmq.Queue(url, c.queue).Run(ctx, func(ctx context.Context, s consumer.Stream) error {
			ms, err := s.Next(ctx, 1)
			if err != nil {
				return err
			}
			close(begun)
			<-finish
			return s.Ack(context.Background(), ms...)
		})
	}()
	<-begun
	eventually(t, "all four are handed out", func() bool { return must(t, c) == 0 })
	cancel()
	eventually(t, "three are handed back while one is busy", func() bool { return must(t, c) == 3 })
	close(finish)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	w := start(t, rabbitmq.Queue(url, c.queue))
	w.want("a", "b", "c")
}

func TestOneRunAtATime(t *testing.T) {
	t.Parallel()
	url := brokerURL(t)
	c := newClient(t, url, nil)
	s := rabbitmq.Queue(url, c.queue)
	start(t, s)
	eventually(t, "consuming", func() bool { return s.Health() == nil })
	if err := s.Run(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "running already") {
		t.Errorf("a second Run: %v", err)
	}
}

func must(t *testing.T, c *client) int {
	t.Helper()
	n, err := c.waiting()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A handler may be busy for long after its stream was lost; meanwhile nothing
// is consumed, and Health says so.
func TestHealthWhileALostStreamFinishes(t *testing.T) {
	t.Parallel()
	url := brokerURL(t)
	c := newClient(t, url, nil)
	p, proxied := newProxy(t, url)
	s := newSource(t, rabbitmq.Config{URL: proxied, Queue: c.queue, BackoffMin: time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	lost, finish, done := make(chan struct{}, 1), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- s.Run(ctx, func(ctx context.Context, _ consumer.Stream) error {
			<-ctx.Done()
			lost <- struct{}{}
			<-finish
			return nil
		})
	}()
	eventually(t, "consuming", func() bool { return s.Health() == nil })
	p.cut()
	<-lost
	if err := s.Health(); err == nil || !strings.Contains(err.Error(), "lost") {
		t.Errorf("Health while the stream finishes: %v", err)
	}
	close(finish)
	eventually(t, "consuming again", func() bool { return s.Health() == nil })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A message that takes long does not keep the acknowledgements behind it, and with
// them the messages that the broker still has.
func TestAcksDoNotWaitForASlowMessage(t *testing.T) {
	t.Parallel()
	c := newClient(t, brokerURL(t), nil)
	c.send("slow", "b", "c", "d", "e")
	w := start(t, newSource(t, rabbitmq.Config{URL: brokerURL(t), Queue: c.queue, Prefetch: 3}))
	slow := w.next()
	for _, body := range []string{"b", "c", "d", "e"} {
		d := w.next()
		if string(d.Body) != body {
			t.Fatalf("got %q, want %q", d.Body, body)
		}
		d.ack(t)
	}
	slow.ack(t)
	w.stop()
	if n := must(t, c); n != 0 {
		t.Errorf("%d messages are left", n)
	}
}
