package rabbitmq_test

import (
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/ackafter/ackafter/brokers/rabbitmq"
)

// No part of the password may be seen, not even where it ended up in a wrong
// place of the URL.
func TestURLMistakes(t *testing.T) {
	for url, want := range map[string]string{
		"":                                                           "Config.URL is empty",
		"localhost":                                                  "has no scheme",
		"guest:s3cr3t@localhost":                                     "has no scheme",
		"http://guest:s3cr3t@localhost":                              `scheme "http": it must be amqp or amqps`,
		"ampq://guest:s3cr3t@localhost":                              `scheme "ampq": it must be amqp or amqps`,
		"amqp://guest:s3cr3t@":                                       "has no host",
		"amqp://":                                                    "has no host",
		"amqp:///vhost":                                              "has no host",
		"amqp://guest:s3cr3t@localhost:0":                            "the port 0",
		"amqp://guest:s3cr3t@localhost:65536":                        "the port 65536",
		"amqp://guest:s3cr3t@localhost:amqp":                         "percent-encoded",
		"amqp://guest:s3%zzcr3t@localhost":                           "percent-encoded",
		"amqp://guest:s3/cr3t@localhost":                             "percent-encoded",
		"amqp://guest:12/cr3t@localhost":                             "percent-encoded",
		"amqp://guest:12?cr3t@localhost":                             "percent-encoded",
		"amqp://guest:12#cr3t@localhost":                             "percent-encoded",
		"amqp://guest:s3 cr3t@localhost":                             "percent-encoded",
		"amqp://guest:x@s3/cr3t@localhost/vhost":                     "percent-encoded",
		"amqp://guest:x@s3?cr3t@localhost/vhost":                     "percent-encoded",
		"amqp://guest:x@b?heartbeat=cr3t@localhost/vhost":            "percent-encoded",
		"amqp://guest:s3cr3t@localhost/vhost#":                       "",
		"amqp://guest:s3cr3t@localhost?heartbeat=x":                  "heartbeat is not an uint16",
		"amqp://guest:s3cr3t@localhost?auth_mechanism=magic":         `auth_mechanism "magic"`,
		"amqp://guest:p%40ss%2Fw%3Ard%23%3F%25@localhost:5672/a%2Fb": "",
		"amqps://guest:p%40ss@[::1]/":                                "",
	} {
		_, err := rabbitmq.New(rabbitmq.Config{URL: url, Queue: "orders"})
		switch {
		case err == nil && want != "":
			t.Errorf("%s: accepted", url)
		case err != nil && (want == "" || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: got %q, want %q", url, err, want)
		case err != nil && (strings.Contains(err.Error(), "s3") || strings.Contains(err.Error(), "cr3t") || strings.Contains(err.Error(), "%zz")):
			t.Errorf("%s: the error gives the password away: %v", url, err)
		}
	}
}

func TestConfigMistakes(t *testing.T) {
	const valid = "amqp://localhost"
	for _, c := range []struct {
		config rabbitmq.Config
		want   []string
	}{
		{rabbitmq.Config{}, []string{"Config.URL is empty", "Config.Queue is empty"}},
		{rabbitmq.Config{URL: valid, Queue: strings.Repeat("q", 256)}, []string{"Config.Queue has 256 bytes"}},
		{rabbitmq.Config{URL: valid, Queue: "q", Prefetch: -1}, []string{"Config.Prefetch is -1"}},
		{rabbitmq.Config{URL: valid, Queue: "q", Prefetch: 65536}, []string{"Config.Prefetch is 65536"}},
		{rabbitmq.Config{URL: valid, Queue: "q", ConsumerTag: strings.Repeat("t", 201)}, []string{"Config.ConsumerTag has 201"}},
		{rabbitmq.Config{URL: valid, Queue: "q", AMQP: amqp.Config{Recovery: &amqp.Recovery{}}}, []string{"Config.AMQP.Recovery must be nil"}},
		{rabbitmq.Config{URL: valid, Queue: "q", ConsumerArguments: amqp.Table{"x": struct{}{}}}, []string{"Config.ConsumerArguments cannot be sent"}},
		{rabbitmq.Config{URL: valid, Queue: "q", DialTimeout: -1, WriteTimeout: -1, CloseTimeout: -1, BackoffMin: -1, BackoffMax: -2},
			[]string{"Config.DialTimeout", "Config.WriteTimeout", "Config.CloseTimeout", "Config.BackoffMin", "Config.BackoffMax is -2ns"}},
		{rabbitmq.Config{URL: valid, Queue: "q", BackoffMin: time.Minute, BackoffMax: time.Second}, []string{"Config.BackoffMax is 1s"}},
		{rabbitmq.Config{URL: valid, Queue: "q", Declare: &rabbitmq.Topology{
			Type: "stream", DeadLetterRoutingKey: "k", ConsumerTimeout: -1,
			Arguments: amqp.Table{"x": struct{}{}, "x-queue-type": "quorum"},
			Bindings:  []rabbitmq.Binding{{Arguments: amqp.Table{"x": struct{}{}}}},
		}}, []string{
			`Declare.Type is "stream"`, "Declare.DeadLetterRoutingKey needs", "Declare.ConsumerTimeout",
			"Declare.Arguments cannot be sent", "Declare.Arguments repeats x-queue-type",
			"Declare.Bindings[0].Exchange is empty", "Declare.Bindings[0].Arguments cannot be sent",
		}},
		{rabbitmq.Config{URL: valid, Queue: "q", Declare: &rabbitmq.Topology{Type: "classic", DeliveryLimit: 3}}, []string{"Declare.DeliveryLimit is for quorum"}},
	} {
		_, err := rabbitmq.New(c.config)
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		}
	}
}

// Queue has no error to return: it is kept for Validate, Check and Run.
func TestQueueKeepsItsMistakes(t *testing.T) {
	s := rabbitmq.Queue("amqp://localhost", "")
	for name, err := range map[string]error{
		"Validate": s.Validate(), "Run": s.Run(t.Context(), nil), "Check": s.Check(t.Context(), plan(t)),
	} {
		if err == nil || !strings.Contains(err.Error(), "Config.Queue is empty") {
			t.Errorf("%s returns %v", name, err)
		}
	}
	if err := rabbitmq.Queue("amqp://localhost", "orders").Validate(); err != nil {
		t.Error(err)
	}
	if s.System() != "rabbitmq" || s.Health() == nil {
		t.Errorf("System %q, Health %v", s.System(), s.Health())
	}
}
