package rabbitmq_test

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"github.com/ackafter/ackafter/brokers/rabbitmq"
	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/internal/servers"
	"github.com/ackafter/ackafter/internal/testmain"
)

const limit = 30 * time.Second

func TestMain(m *testing.M) {
	testmain.Need("AMQP_URL")
	goleak.VerifyTestMain(m)
}

// brokerURL returns the address of the shared broker. Without one the test
// fails, unless it is a short run.
func brokerURL(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("needs RabbitMQ")
	}
	url, err := servers.AMQPURL()
	if err != nil {
		t.Fatal(err)
	}
	return url
}

// client is a connection of the test's own, to one queue of its own.
type client struct {
	t     *testing.T
	ch    *amqp.Channel
	queue string
}

// newClient declares a durable queue, which is deleted at the end of the test.
func newClient(t *testing.T, url string, args amqp.Table) *client {
	t.Helper()
	c := &client{t: t, queue: "ackafter-test-" + rand.Text()}
	c.reconnect(url)
	c.declare(args)
	t.Cleanup(c.delete)
	return c
}

// reconnect gives c a new channel, with publisher confirms.
func (c *client) reconnect(url string) {
	c.t.Helper()
	c.ch = dial(c.t, url)
	if err := c.ch.Confirm(false); err != nil {
		c.t.Fatal(err)
	}
}

// dial opens a channel on a connection that is closed at the end of the test.
func dial(t *testing.T, url string) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

func (c *client) declare(args amqp.Table) {
	c.t.Helper()
	if _, err := c.ch.QueueDeclare(c.queue, true, false, false, false, args); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) delete() {
	if _, err := c.ch.QueueDelete(c.queue, false, false, false); err != nil && !errors.Is(err, amqp.ErrClosed) {
		c.t.Error(err)
	}
}

// waiting returns how many messages the broker has not handed out.
func (c *client) waiting() (int, error) {
	q, err := c.ch.QueueDeclarePassive(c.queue, true, false, false, false, nil)
	return q.Messages, err
}

// publish returns when the broker has confirmed every message.
func (c *client) publish(ctx context.Context, ps ...amqp.Publishing) error {
	confirmations := make([]*amqp.DeferredConfirmation, len(ps))
	for i, p := range ps {
		p.DeliveryMode = amqp.Persistent
		var err error
		confirmations[i], err = c.ch.PublishWithDeferredConfirmWithContext(ctx, "", c.queue, true, false, p)
		if err != nil {
			return err
		}
	}
	for _, confirmation := range confirmations {
		if acked, err := confirmation.WaitContext(ctx); err != nil || !acked {
			return errors.Join(err, errors.New("not confirmed"))
		}
	}
	return nil
}

// send publishes messages with the given bodies.
func (c *client) send(bodies ...string) {
	c.t.Helper()
	ps := make([]amqp.Publishing, len(bodies))
	for i, body := range bodies {
		ps[i].Body = []byte(body)
	}
	c.sendAll(ps...)
}

func (c *client) sendAll(ps ...amqp.Publishing) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), limit)
	defer cancel()
	if err := c.publish(ctx, ps...); err != nil {
		c.t.Fatal(err)
	}
}

func newSource(t *testing.T, c rabbitmq.Config) *rabbitmq.Source {
	t.Helper()
	s, err := rabbitmq.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// delivery is a message with the stream that delivered it.
type delivery struct {
	*consumer.Message
	stream consumer.Stream
}

func (d delivery) ack(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if err := d.stream.Ack(ctx, d.Message); err != nil {
		t.Fatal(err)
	}
}

// worker runs a source and passes on what it delivers.
type worker struct {
	t      *testing.T
	source *rabbitmq.Source
	cancel context.CancelFunc
	got    chan delivery
	done   chan error
}

func start(t *testing.T, s *rabbitmq.Source) *worker {
	ctx, cancel := context.WithCancel(context.Background())
	w := &worker{t: t, source: s, cancel: cancel, got: make(chan delivery), done: make(chan error, 1)}
	go func() { w.done <- s.Run(ctx, w.serve) }()
	t.Cleanup(w.stop)
	return w
}

func (w *worker) serve(ctx context.Context, s consumer.Stream) error {
	for {
		ms, err := s.Next(ctx, 1)
		if err != nil {
			return nil
		}
		select {
		case w.got <- delivery{ms[0], s}:
		case <-ctx.Done():
			return nil
		}
	}
}

func (w *worker) next() delivery {
	w.t.Helper()
	select {
	case d := <-w.got:
		return d
	case err := <-w.done:
		w.done <- err
		w.t.Fatalf("Run has returned: %v", err)
	case <-time.After(limit):
		w.t.Fatalf("no message; health: %v", w.source.Health())
	}
	panic("unreachable")
}

// want takes the next messages, acknowledges them and compares their bodies.
func (w *worker) want(bodies ...string) {
	w.t.Helper()
	for _, body := range bodies {
		d := w.next()
		if string(d.Body) != body {
			w.t.Fatalf("got %q, want %q", d.Body, body)
		}
		d.ack(w.t)
	}
}

// stop ends Run and waits for it. It may be called twice.
func (w *worker) stop() {
	w.t.Helper()
	w.cancel()
	select {
	case err := <-w.done:
		w.done <- err
		if err != nil {
			w.t.Errorf("Run: %v", err)
		}
	case <-time.After(limit):
		w.t.Fatal("Run does not return")
	}
}

// eventually waits until ok returns true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	timeout := time.After(limit)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("never: %s", what)
		}
	}
}
