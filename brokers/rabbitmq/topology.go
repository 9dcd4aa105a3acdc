package rabbitmq

import (
	"errors"
	"fmt"
	"maps"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Topology is the queue that Config.Declare declares: durable, neither
// exclusive nor deleted by itself. Exchanges are never declared. The broker
// compares it with a queue that exists, and the differences are an error.
type Topology struct {
	// Type is amqp091.QueueTypeQuorum or amqp091.QueueTypeClassic. Empty
	// means the default of the vhost.
	Type string
	// DeadLetterExchange is where the broker sends messages that it drops
	// from the queue: beyond the delivery limit, or expired. Empty means
	// that they are gone.
	DeadLetterExchange string
	// DeadLetterRoutingKey replaces the routing key of those messages. Empty
	// means that they keep theirs.
	DeadLetterRoutingKey string
	// DeliveryLimit is how often a quorum queue delivers a message again
	// before it drops it. Zero means the broker's default: 20 since RabbitMQ
	// 4.0, none before. Negative means no limit.
	DeliveryLimit int
	// ConsumerTimeout is how long the broker waits for an acknowledgement
	// from a consumer of this queue, since RabbitMQ 3.12. Zero means the
	// broker's own setting.
	ConsumerTimeout time.Duration
	// Arguments are further arguments of the queue, such as x-max-length.
	// Nil means none.
	Arguments amqp.Table
	// Bindings bind the queue to exchanges, which must exist. Nil means that
	// it is reached only through the default exchange, by its name.
	Bindings []Binding
}

// Binding routes messages from an exchange to the queue.
type Binding struct {
	Exchange  string     // the exchange; it must exist
	Key       string     // the routing key or pattern; some exchanges use none
	Arguments amqp.Table // what a headers exchange matches; nil means none
}

// The arguments that fields of Topology stand for.
const (
	argDeadLetterExchange   = "x-dead-letter-exchange"
	argDeadLetterRoutingKey = "x-dead-letter-routing-key"
	argDeliveryLimit        = "x-delivery-limit"
)

// arguments returns the arguments of queue.declare.
func (t *Topology) arguments() amqp.Table {
	args := amqp.Table{}
	maps.Copy(args, t.Arguments)
	maps.Copy(args, t.fieldArguments())
	return args
}

func (t *Topology) fieldArguments() amqp.Table {
	args := amqp.Table{}
	if t.Type != "" {
		args[amqp.QueueTypeArg] = t.Type
	}
	if t.DeadLetterExchange != "" {
		args[argDeadLetterExchange] = t.DeadLetterExchange
	}
	if t.DeadLetterRoutingKey != "" {
		args[argDeadLetterRoutingKey] = t.DeadLetterRoutingKey
	}
	if t.DeliveryLimit != 0 {
		args[argDeliveryLimit] = int64(max(t.DeliveryLimit, -1))
	}
	if t.ConsumerTimeout != 0 {
		args[amqp.ConsumerTimeoutArg] = t.ConsumerTimeout.Milliseconds()
	}
	return args
}

func (t *Topology) validate() error {
	var errs []error
	refuse := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("rabbitmq: Config.Declare."+format, args...))
	}
	if t.Type != "" && t.Type != amqp.QueueTypeClassic && t.Type != amqp.QueueTypeQuorum {
		refuse("Type is %q: it must be %q or %q", t.Type, amqp.QueueTypeClassic, amqp.QueueTypeQuorum)
	}
	if t.DeadLetterRoutingKey != "" && t.DeadLetterExchange == "" {
		refuse("DeadLetterRoutingKey needs a DeadLetterExchange")
	}
	if t.DeliveryLimit != 0 && t.Type == amqp.QueueTypeClassic {
		refuse("DeliveryLimit is for quorum queues only")
	}
	if t.ConsumerTimeout < 0 {
		refuse("ConsumerTimeout is %v: it must not be negative", t.ConsumerTimeout)
	}
	if err := t.Arguments.Validate(); err != nil {
		refuse("Arguments cannot be sent: %w", err)
	}
	for name := range t.fieldArguments() {
		if _, both := t.Arguments[name]; both {
			refuse("Arguments repeats %s, for which there is a field", name)
		}
	}
	for i, b := range t.Bindings {
		if b.Exchange == "" {
			refuse("Bindings[%d].Exchange is empty: every queue is bound to the default exchange by its name", i)
		}
		if err := b.Arguments.Validate(); err != nil {
			refuse("Bindings[%d].Arguments cannot be sent: %w", i, err)
		}
	}
	return errors.Join(errs...)
}

// declare creates the queue and its bindings, or compares them.
func (t *Topology) declare(ch *amqp.Channel, queue string) error {
	if _, err := ch.QueueDeclare(queue, true, false, false, false, t.arguments()); err != nil {
		return err
	}
	for _, b := range t.Bindings {
		if err := ch.QueueBind(queue, b.Key, b.Exchange, false, b.Arguments); err != nil {
			return err
		}
	}
	return nil
}
