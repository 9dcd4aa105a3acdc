package rabbitmq_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/ackafter/ackafter/brokers/rabbitmq"
	"github.com/ackafter/ackafter/consumer"
)

// secret has every character that is special in a URL.
const secret = "s3cr3t:@/?#%[] ü"

// plan refuses every warning.
func plan(t *testing.T) consumer.Plan {
	return consumer.Plan{
		Workers:        1,
		HandlerTimeout: time.Minute,
		Warn:           func(problem string) { t.Errorf("warned: %s", problem) },
	}
}

// check runs Check, which must return an error with all of want and without
// the password.
func check(t *testing.T, c rabbitmq.Config, want ...string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	err := newSource(t, c).Check(ctx, plan(t))
	if err == nil {
		t.Fatalf("Check has found nothing, want %q", want)
	}
	t.Log(err)
	for _, part := range want {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("got %q, want %q", err, part)
		}
	}
	for _, part := range []string{secret, url.QueryEscape(secret), url.PathEscape(secret), "s3cr3t"} {
		if strings.Contains(err.Error(), part) {
			t.Errorf("the error gives the password away: %v", err)
		}
	}
	if !strings.HasPrefix(err.Error(), "rabbitmq: ") {
		t.Errorf("the error does not say where it is from: %v", err)
	}
	return err
}

// at returns the URL with something replaced.
func at(t *testing.T, brokerURL string, change func(*url.URL)) string {
	t.Helper()
	u, err := url.Parse(brokerURL)
	if err != nil {
		t.Fatal(err)
	}
	change(u)
	return u.String()
}

func wantOutage(t *testing.T, err error, want bool) {
	t.Helper()
	if errors.Is(err, consumer.ErrOutage) != want {
		t.Errorf("is an outage: %v, want %v: %v", !want, want, err)
	}
}

func TestCheckFindsNothing(t *testing.T) {
	t.Parallel()
	url := brokerURL(t)
	c := newClient(t, url, nil)
	if err := rabbitmq.Queue(url, c.queue).Check(t.Context(), plan(t)); err != nil {
		t.Error(err)
	}
}

func TestCheckVhost(t *testing.T) {
	t.Parallel()
	u := at(t, brokerURL(t), func(u *url.URL) { u.Path = "/no-such-vhost" })
	wantOutage(t, check(t, rabbitmq.Config{URL: u, Queue: "q"}, `the vhost "no-such-vhost"`, "add_vhost"), false)
}

func TestCheckQueue(t *testing.T) {
	t.Parallel()
	u := brokerURL(t)
	wantOutage(t, check(t, rabbitmq.Config{URL: u, Queue: "no-such-queue"},
		`the queue "no-such-queue" does not exist in vhost "/"`, "create it", "Config.Declare"), false)

	c := newClient(t, u, nil)
	wantOutage(t, check(t, rabbitmq.Config{URL: u, Queue: c.queue, Declare: &rabbitmq.Topology{Type: "quorum"}},
		c.queue, "not as Config.Declare says", "x-queue-type"), false)
	wantOutage(t, check(t, rabbitmq.Config{URL: u, Queue: c.queue, Declare: &rabbitmq.Topology{Bindings: []rabbitmq.Binding{{Exchange: "no-such-exchange"}}}},
		"exchange", "no-such-exchange", "create it first"), false)

	ch := dial(t, u)
	exclusive, err := ch.QueueDeclare("", false, true, true, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	wantOutage(t, check(t, rabbitmq.Config{URL: u, Queue: exclusive.Name}, exclusive.Name, "belongs to another connection", "exclusive"), false)
}

func TestCheckDeclares(t *testing.T) {
	t.Parallel()
	u := brokerURL(t)
	c := newClient(t, u, nil)
	c.delete()
	s := newSource(t, rabbitmq.Config{URL: u, Queue: c.queue, Declare: &rabbitmq.Topology{
		Type: "quorum", DeliveryLimit: 5, DeadLetterExchange: "amq.fanout", DeadLetterRoutingKey: "dead",
		Arguments: amqp.Table{"x-max-length": int32(1000)},
	}})
	for range 2 { // it compares the second time
		if err := s.Check(t.Context(), plan(t)); err != nil {
			t.Error(err)
		}
	}
	if must(t, c) != 0 {
		t.Error("the queue is not empty")
	}
}

func TestCheckWarns(t *testing.T) {
	t.Parallel()
	u := brokerURL(t)
	c := newClient(t, u, amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": int32(5)})
	var warnings []string
	p := plan(t)
	p.Workers = 20
	p.Warn = func(problem string) { warnings = append(warnings, problem) }
	s := newSource(t, rabbitmq.Config{
		URL: u, Queue: c.queue, Prefetch: 10, Declare: &rabbitmq.Topology{Type: "quorum", DeliveryLimit: 5},
	})
	if err := s.Check(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(warnings, "\n"); len(warnings) != 2 ||
		!strings.Contains(got, "no dead-letter exchange") || !strings.Contains(got, "Prefetch") {
		t.Errorf("got the warnings:\n%s", got)
	}
}

func TestCheckHandlerTimeout(t *testing.T) {
	t.Parallel()
	p := plan(t)
	for _, c := range []struct {
		config  rabbitmq.Config
		handler time.Duration
		refused bool
	}{
		{rabbitmq.Config{}, 30 * time.Minute, true},
		{rabbitmq.Config{ConsumerTimeout: time.Minute}, time.Minute, true},
		{rabbitmq.Config{Declare: &rabbitmq.Topology{ConsumerTimeout: time.Minute}}, time.Minute, true},
		{rabbitmq.Config{ConsumerTimeout: time.Hour}, 30 * time.Minute, false},
		{rabbitmq.Config{ConsumerTimeout: -1}, 30 * time.Hour, false},
	} {
		c.config.URL, c.config.Queue, c.config.DialTimeout = "amqp://127.0.0.1:1", "q", time.Second
		p.HandlerTimeout = c.handler
		err := newSource(t, c.config).Check(t.Context(), p)
		if refused := strings.Contains(err.Error(), "consumer_timeout"); refused != c.refused {
			t.Errorf("%v of %v: %v", c.handler, c.config.ConsumerTimeout, err)
		}
	}
}
