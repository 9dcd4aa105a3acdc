package rabbitmq_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/ackafter/ackafter/brokers/rabbitmq"
	"github.com/ackafter/ackafter/consumer"
)

// deadLetters returns dead letters that are closed at the end of the test.
func deadLetters(t *testing.T, c rabbitmq.DeadLetterConfig) *rabbitmq.DeadLetter {
	t.Helper()
	d, err := rabbitmq.NewDeadLetter(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// exchange declares an exchange, which is deleted at the end of the test.
func (c *client) exchange(kind string) string {
	c.t.Helper()
	name := "ackafter-test-" + rand.Text()
	if err := c.ch.ExchangeDeclare(name, kind, true, false, false, false, nil); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = c.ch.ExchangeDelete(name, false, false) })
	return name
}

func (c *client) bind(exchange, key string) {
	c.t.Helper()
	if err := c.ch.QueueBind(c.queue, key, exchange, false, nil); err != nil {
		c.t.Fatal(err)
	}
}

// get takes one message that is there, or is about to be.
func (c *client) get() amqp.Delivery {
	c.t.Helper()
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); {
		d, ok, err := c.ch.Get(c.queue, true)
		if err != nil {
			c.t.Fatal(err)
		}
		if ok {
			return d
		}
	}
	c.t.Fatal("no message")
	return amqp.Delivery{}
}

func failure(m *consumer.Message) consumer.Failure {
	return consumer.Failure{Message: m, Reason: consumer.ReasonPermanent, Error: "no such account", Attempts: 3, RetryIn: -1}
}

func publishDead(t *testing.T, d *rabbitmq.DeadLetter, m *consumer.Message) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	return d.Publish(ctx, failure(m))
}

func wantText(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("got %v\nwant %q in it", err, part)
		}
	}
}

// Everything of a delivery comes through, less what the broker would act upon.
func TestDeadLetterKeepsTheMessage(t *testing.T) {
	t.Parallel()
	url := brokerURL(t)
	c, dead := newClient(t, url, nil), newClient(t, url, nil)
	exchange := dead.exchange("direct")
	dead.bind(exchange, c.queue)
	sent := amqp.Publishing{
		Headers:     amqp.Table{"s": "text", "b": []byte{0, 0xff}, "i": int64(7), "t": amqp.Table{"x": true}, "CC": []any{"elsewhere"}, consumer.HeaderReason: "stale"},
		ContentType: "application/json", ContentEncoding: "identity", Priority: 3, CorrelationId: "corr", ReplyTo: "reply",
		Expiration: "600000", MessageId: "m1", Timestamp: time.Unix(1_700_000_000, 0).UTC(), Type: "paid", UserId: "guest", AppId: "shop",
		Body: []byte("\x00body\xff"),
	}
	c.sendAll(sent)
	w := start(t, rabbitmq.Queue(url, c.queue))
	delivered := w.next()
	if err := publishDead(t, deadLetters(t, rabbitmq.DeadLetterConfig{URL: url, Exchange: exchange}), delivered.Message); err != nil {
		t.Fatal(err)
	}
	got := dead.get()
	delivered.ack(t)
	want := amqp.Table{
		"s": "text", "b": []byte{0, 0xff}, "i": int64(7), "t": amqp.Table{"x": true},
		"ackafter-CC": []any{"elsewhere"}, "ackafter-expiration": "600000", "ackafter-user-id": "guest",
		"ackafter-reason": "permanent", "ackafter-error": "no such account", "ackafter-attempts": "3",
		"ackafter-position": "queue " + c.queue + " #1", "ackafter-time": "2023-11-14T22:13:20Z",
		"x-first-death-queue": c.queue, "x-first-death-reason": "rejected", "x-first-death-exchange": "",
	}
	if !reflect.DeepEqual(got.Headers, want) {
		t.Errorf("headers are %v\nwant %v", got.Headers, want)
	}
	if got.DeliveryMode != amqp.Persistent || got.Expiration != "" || got.UserId != "" || got.RoutingKey != c.queue {
		t.Errorf("got %+v", got)
	}
	gotProps := []any{got.ContentType, got.ContentEncoding, got.Priority, got.CorrelationId, got.ReplyTo, got.MessageId, got.Timestamp.UTC(), got.Type, got.AppId, string(got.Body)}
	wantProps := []any{sent.ContentType, sent.ContentEncoding, sent.Priority, sent.CorrelationId, sent.ReplyTo, sent.MessageId, sent.Timestamp, sent.Type, sent.AppId, string(sent.Body)}
	if !reflect.DeepEqual(gotProps, wantProps) {
		t.Errorf("properties are %v\nwant %v", gotProps, wantProps)
	}
}

// From the table there is no delivery.
func TestDeadLetterFromTheTable(t *testing.T) {
	t.Parallel()
	url := brokerURL(t)
	dead := newClient(t, url, nil)
	d := deadLetters(t, rabbitmq.DeadLetterConfig{URL: url, RoutingKey: dead.queue})
	m := &consumer.Message{
		ID: "m1", Type: "paid", Topic: "order.paid", Body: []byte("body"), Time: time.Unix(1_700_000_000, 0), Position: "queue some orders #17",
		Headers: consumer.Headers{{Key: "s", Value: []byte("text")}, {Key: "b", Value: []byte{0xff}}, {Key: "x-first-death-queue", Value: []byte("earlier")}},
	}
	if err := publishDead(t, d, m); err != nil {
		t.Fatal(err)
	}
	got := dead.get()
	if got.MessageId != "m1" || got.Type != "paid" || !got.Timestamp.Equal(m.Time) || string(got.Body) != "body" {
		t.Errorf("got %+v", got)
	}
	for key, want := range map[string]any{"s": "text", "b": []byte{0xff}, "x-first-death-queue": "earlier", "ackafter-position": "queue some orders #17"} {
		if !reflect.DeepEqual(got.Headers[key], want) {
			t.Errorf("header %s is %v, want %v", key, got.Headers[key], want)
		}
	}
	long := *m
	long.ID = strings.Repeat("x", consumer.MaxIDBytes)
	if err := publishDead(t, d, &long); err != nil {
		t.Fatal(err)
	}
	if got := dead.get(); got.MessageId != "" {
		t.Error("an id that AMQP cannot hold was sent")
	}
	long.Headers = consumer.Headers{{Key: strings.Repeat("x", 256)}}
	if err := publishDead(t, d, &long); !errors.Is(err, consumer.ErrRefused) {
		t.Errorf("got %v, want ErrRefused", err)
	}
}

// A message that no queue takes is confirmed by the broker, and is not stored.
func TestDeadLetterReturnedIsNotConfirmed(t *testing.T) {
	t.Parallel()
	url := brokerURL(t)
	dead := newClient(t, url, nil)
	exchange := dead.exchange("direct")
	d := deadLetters(t, rabbitmq.DeadLetterConfig{URL: url, Exchange: exchange})
	m := &consumer.Message{Topic: "order.paid", Body: []byte("x")}
	for range 2 {
		err := publishDead(t, d, m)
		wantText(t, err, exchange, `"order.paid"`, "no queue is bound", "NO_ROUTE", "DeadLetterConfig.RoutingKey")
	}
	dead.bind(exchange, "order.paid")
	if err := publishDead(t, d, m); err != nil {
		t.Fatal(err)
	}
	dead.get()
}

// A queue that is full refuses by basic.nack.
func TestDeadLetterNacked(t *testing.T) {
	t.Parallel()
	url := brokerURL(t)
	dead := newClient(t, url, amqp.Table{"x-max-length": int32(1), "x-overflow": "reject-publish"})
	d := deadLetters(t, rabbitmq.DeadLetterConfig{URL: url, RoutingKey: dead.queue})
	m := &consumer.Message{Topic: "k", Body: []byte("x")}
	var err error
	for range 3 {
		if err = publishDead(t, d, m); err != nil {
			break
		}
	}
	wantText(t, err, dead.queue, "is it full", "does not take")
	if !errors.Is(err, consumer.ErrOutage) {
		t.Errorf("%v is no outage", err)
	}
	dead.get()
	if err := publishDead(t, d, m); err != nil {
		t.Error(err)
	}
}

func TestDeadLetterMissingExchange(t *testing.T) {
	t.Parallel()
	url := brokerURL(t)
	d := deadLetters(t, rabbitmq.DeadLetterConfig{URL: url, Exchange: "no-such-exchange"})
	wantText(t, d.Check(t.Context(), consumer.Plan{}), `exchange "no-such-exchange" does not exist`, "create it")
	wantText(t, publishDead(t, d, &consumer.Message{Topic: "k"}), `exchange "no-such-exchange" does not exist`, "create it")
	wantText(t, publishDead(t, d, &consumer.Message{Topic: "k"}), "does not exist") // on a new channel
	d = deadLetters(t, rabbitmq.DeadLetterConfig{URL: url, RoutingKey: "no-such-queue"})
	wantText(t, d.Check(t.Context(), consumer.Plan{}), `queue "no-such-queue" does not exist`)
	dead := newClient(t, url, nil)
	for _, c := range []rabbitmq.DeadLetterConfig{{URL: url, Exchange: dead.exchange("topic")}, {URL: url, RoutingKey: dead.queue}} {
		if err := deadLetters(t, c).Check(t.Context(), consumer.Plan{}); err != nil {
			t.Error(err)
		}
	}
}

func TestDeadLetterTooLarge(t *testing.T) {
	t.Parallel()
	url := brokerURL(t)
	dead := newClient(t, url, nil)
	d := deadLetters(t, rabbitmq.DeadLetterConfig{URL: url, RoutingKey: dead.queue})
	err := publishDead(t, d, &consumer.Message{Body: bytes.Repeat([]byte("x"), 150<<20)}) // the default is 128 MiB at most
	if !errors.Is(err, consumer.ErrRefused) {
		t.Fatalf("got %v, want ErrRefused", err)
	}
	if err := publishDead(t, d, &consumer.Message{Body: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	dead.get()
}

// A peer that stops reading holds a Publish up for no longer than its context;
// the next one has another connection.
func TestDeadLetterStalled(t *testing.T) {
	t.Parallel()
	url := brokerURL(t)
	dead := newClient(t, url, nil)
	dial, last := recordingDial()
	d := deadLetters(t, rabbitmq.DeadLetterConfig{URL: url, RoutingKey: dead.queue, AMQP: amqp.Config{Dial: dial}, WriteTimeout: time.Hour})
	m := &consumer.Message{Topic: "k", Body: []byte("x")}
	if err := publishDead(t, d, m); err != nil {
		t.Fatal(err)
	}
	dead.get()
	last().stalled.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := d.Publish(ctx, failure(m))
	if !errors.Is(err, consumer.ErrOutage) {
		t.Fatalf("got %v, want ErrOutage", err)
	}
	wantText(t, err, "does not confirm a dead letter", "alarm")
	if err := publishDead(t, d, m); err != nil {
		t.Fatal(err)
	}
	dead.get()
}

// A connection that is cut is opened again.
func TestDeadLetterReconnects(t *testing.T) {
	t.Parallel()
	url := brokerURL(t)
	dead := newClient(t, url, nil)
	p, through := newProxy(t, url)
	d := deadLetters(t, rabbitmq.DeadLetterConfig{URL: through, RoutingKey: dead.queue})
	m := &consumer.Message{Topic: "k", Body: []byte("x")}
	for range 3 {
		if err := publishDead(t, d, m); err != nil {
			t.Fatal(err)
		}
		dead.get()
		p.cut()
		deadline := time.Now().Add(limit)
		for err := publishDead(t, d, m); err != nil; err = publishDead(t, d, m) {
			if !errors.Is(err, consumer.ErrOutage) || time.Now().After(deadline) {
				t.Fatal(err)
			}
		}
		dead.get()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.Publish(ctx, failure(m)); err == nil {
		t.Error("published after its context had ended")
	}
}

// Close leaves nothing behind (goleak), and a Publish after it connects again.
func TestDeadLetterCloseAndAgain(t *testing.T) {
	t.Parallel()
	url := brokerURL(t)
	dead := newClient(t, url, nil)
	d := deadLetters(t, rabbitmq.DeadLetterConfig{URL: url, RoutingKey: dead.queue})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 10 {
				if err := publishDead(t, d, &consumer.Message{Topic: "k", Body: []byte("x")}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 5 {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	all.Wait()
	for range 40 {
		dead.get()
	}
}

func TestDeadLetterConfigMistakes(t *testing.T) {
	_, err := rabbitmq.NewDeadLetter(rabbitmq.DeadLetterConfig{})
	wantText(t, err, "Config.URL is empty", "DeadLetterConfig.Exchange and RoutingKey are empty")
	_, err = rabbitmq.NewDeadLetter(rabbitmq.DeadLetterConfig{URL: "amqp://localhost", Exchange: strings.Repeat("x", 256), DialTimeout: -1})
	wantText(t, err, "DeadLetterConfig.Exchange has 256 bytes", "DialTimeout")
	wantText(t, new(rabbitmq.DeadLetter).Validate(), "make the dead letters with NewDeadLetter")
	d, err := rabbitmq.NewDeadLetter(rabbitmq.DeadLetterConfig{URL: "amqp://localhost", RoutingKey: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	err = d.Publish(t.Context(), failure(&consumer.Message{Position: "queue orders #3"}))
	wantText(t, err, `RoutingKey is "orders"`, "would come back")
}

// plainInbox processes everything, and remembers nothing.
type plainInbox struct{}

func (plainInbox) Process(ctx context.Context, _ string, ms []*consumer.Message,
	apply func(context.Context, struct{}, []*consumer.Message) error) ([]consumer.Verdict, error) {
	if err := apply(ctx, struct{}{}, ms); err != nil {
		return nil, err
	}
	return []consumer.Verdict{consumer.Processed}, nil
}

// A runner that cannot publish acknowledges nothing; once it can, the queue is
// empty and the dead letters have each message.
func TestDeadLetterThroughARunner(t *testing.T) {
	t.Parallel()
	url := brokerURL(t)
	c, dead := newClient(t, url, nil), newClient(t, url, nil)
	exchange := dead.exchange("topic")
	d, err := rabbitmq.NewDeadLetter(rabbitmq.DeadLetterConfig{URL: url, Exchange: exchange})
	if err != nil {
		t.Fatal(err)
	}
	runner, err := consumer.New(consumer.Config[struct{}]{
		Subscriber: "billing", Source: rabbitmq.Queue(url, c.queue), Inbox: plainInbox{}, DeadLetter: d,
		Probe:  consumer.Backoff{Min: time.Millisecond, Max: 10 * time.Millisecond},
		Logger: slog.New(slog.DiscardHandler),
		Handler: consumer.HandlerFunc[struct{}](func(context.Context, struct{}, *consumer.Message) error {
			return consumer.Permanent(errors.New("no such account"))
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- runner.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	c.sendAll(amqp.Publishing{MessageId: "m1", Body: []byte("one")}, amqp.Publishing{Body: []byte("no id")})
	eventually(t, "the runner waits for the dead letters", func() bool { return strings.Contains(runner.Health().Reason, "dead letters") })
	wantText(t, errors.New(runner.Health().Reason), "dead letters", exchange, "no queue is bound")
	dead.bind(exchange, "#")
	got := map[string]any{}
	for range 2 {
		m := dead.get()
		got[string(m.Body)] = m.Headers[consumer.HeaderReason]
	}
	if got["one"] != "permanent" || got["no id"] != "unidentified" {
		t.Errorf("got %v", got)
	}
	stop() // which acknowledges, and closes
	if n, err := c.waiting(); err != nil || n != 0 {
		t.Errorf("%d messages are left, %v", n, err)
	}
}
