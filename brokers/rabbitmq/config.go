package rabbitmq

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Config describes one subscription to one queue. Only URL and Queue are
// required.
type Config struct {
	// URL says where the broker is: amqp://user:password@host:port/vhost, or
	// amqps:// for TLS. Reserved characters in user, password and vhost are
	// percent-encoded; net/url.UserPassword does that. Without a port it is
	// 5672, or 5671 for TLS; without a path the vhost is "/". amqp091.ParseURI
	// lists the parameters that may follow, such as heartbeat; in place of its
	// connection_timeout there is DialTimeout.
	URL string
	// Queue is the name of the queue to consume.
	Queue string

	// Prefetch is how many messages the broker hands out before it waits for
	// acknowledgements. It bounds the memory of the source. Zero means 250.
	Prefetch int
	// Key gives a message its key; messages with one key are handled in the
	// order delivered. It must not modify the delivery, and must be safe for
	// concurrent use. Nil means no keys, and so no order.
	Key func(*amqp.Delivery) []byte
	// Declare makes the source create the queue when it is missing, and
	// compare it when it is there. Nil means that the topology is somebody
	// else's: the queue is only looked up.
	Declare *Topology

	// Exclusive asks the broker to give the queue to no other consumer. While
	// there is another one, the source waits.
	Exclusive bool
	// ConsumerArguments are the arguments of basic.consume, such as
	// x-priority. Nil means none.
	ConsumerArguments amqp.Table
	// ConsumerTag begins the name of the consumer in the broker; the source
	// appends what makes it unique. Empty means "ackafter".
	ConsumerTag string
	// ConnectionName names the connection in the broker. Empty means the
	// connection_name in AMQP.Properties, or else "ackafter" and the queue.
	ConnectionName string
	// AMQP configures the client: TLS, SASL, heartbeat. The zero Config is
	// the client's default. Recovery must be nil, see the package comment.
	// Dial, when set, must give up by itself.
	AMQP amqp.Config

	// ConsumerTimeout is how long the broker waits for an acknowledgement
	// before it closes the channel (consumer_timeout in its configuration).
	// It is only compared, never set: Check refuses a handler that may take
	// longer. Zero means that of Declare, or else 30 minutes, the broker's
	// default; negative means that the broker has no limit.
	ConsumerTimeout time.Duration
	// DialTimeout bounds connecting, from the first packet to the first
	// subscription. Zero means 10 seconds.
	DialTimeout time.Duration
	// WriteTimeout bounds each write to the socket, an acknowledgement for
	// example; a connection that is stalled for longer is given up. Zero
	// means 10 seconds.
	WriteTimeout time.Duration
	// CloseTimeout bounds the farewells to the broker, one when a stream stops
	// and one when it is closed; then the socket is closed without them. Zero
	// means 5 seconds.
	CloseTimeout time.Duration
	// BackoffMin and BackoffMax are the shortest and the longest wait before
	// a new connection. The wait doubles each time, less a random part of up
	// to a half. Zero means 100 milliseconds, and 30 seconds.
	BackoffMin, BackoffMax time.Duration

	// Logger gets one line when a stream is lost and one when it is back. Nil
	// means slog.Default().
	Logger *slog.Logger
}

// New returns the source that c describes, or every mistake in c. It connects
// to nothing.
func New(c Config) (*Source, error) {
	s := newSource(c)
	if err := s.Validate(); err != nil {
		return nil, err
	}
	return s, nil
}

// Queue returns the source of one existing queue with the defaults of Config.
// Mistakes in its arguments are reported by Validate, which consumer.New
// calls.
func Queue(url, queue string) *Source {
	return newSource(Config{URL: url, Queue: queue})
}

// withDefaults replaces what is zero.
func (c Config) withDefaults() Config {
	c.Prefetch = or(c.Prefetch, 250)
	c.ConsumerTag = or(c.ConsumerTag, "ackafter")
	if c.Declare != nil {
		c.ConsumerTimeout = or(c.ConsumerTimeout, c.Declare.ConsumerTimeout)
	}
	c.ConsumerTimeout = or(c.ConsumerTimeout, 30*time.Minute)
	c.DialTimeout = or(c.DialTimeout, 10*time.Second)
	c.WriteTimeout = or(c.WriteTimeout, 10*time.Second)
	c.CloseTimeout = or(c.CloseTimeout, 5*time.Second)
	c.BackoffMin = or(c.BackoffMin, 100*time.Millisecond)
	c.BackoffMax = or(c.BackoffMax, max(c.BackoffMin, 30*time.Second))
	return c
}

// or returns v, or byDefault when v is zero.
func or[T comparable](v, byDefault T) T {
	var zero T
	if v == zero {
		return byDefault
	}
	return v
}

// validate returns every mistake in c, joined, each naming its field.
func (c Config) validate() error {
	var errs []error
	refuse := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("rabbitmq: Config."+field+" "+format, args...))
	}
	switch {
	case c.Queue == "":
		refuse("Queue", "is empty: it names the queue to consume")
	case len(c.Queue) > 255:
		refuse("Queue", "has %d bytes: AMQP allows 255", len(c.Queue))
	}
	if c.Prefetch < 0 || c.Prefetch > math.MaxUint16 {
		refuse("Prefetch", "is %d: it must be between 1 and %d, or zero for the default", c.Prefetch, math.MaxUint16)
	}
	if len(c.ConsumerTag) > 200 {
		refuse("ConsumerTag", "has %d bytes: it may have 200", len(c.ConsumerTag))
	}
	if c.AMQP.Recovery != nil {
		refuse("AMQP.Recovery", "must be nil: the client's recovery reopens a channel under the same name, so that an acknowledgement can hit another message; the source reconnects by itself")
	}
	if err := c.ConsumerArguments.Validate(); err != nil {
		refuse("ConsumerArguments", "cannot be sent: %w", err)
	}
	c.validateTimes(refuse)
	if c.Declare != nil {
		errs = append(errs, c.Declare.validate())
	}
	return errors.Join(errs...)
}

// validateTimes reports the mistakes in the time limits.
func (c Config) validateTimes(refuse func(field, format string, args ...any)) {
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"DialTimeout", c.DialTimeout}, {"WriteTimeout", c.WriteTimeout}, {"CloseTimeout", c.CloseTimeout},
		{"BackoffMin", c.BackoffMin}, {"BackoffMax", c.BackoffMax},
	} {
		if d.value < 0 {
			refuse(d.field, "is %v: it must not be negative", d.value)
		}
	}
	if c.BackoffMax != 0 && c.BackoffMax < c.BackoffMin {
		refuse("BackoffMax", "is %v: it must not be less than BackoffMin, %v", c.BackoffMax, c.BackoffMin)
	}
}
