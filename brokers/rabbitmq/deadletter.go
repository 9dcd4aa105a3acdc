package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/ackafter/ackafter/consumer"
)

// DeadLetterConfig describes where dead letters go. Only URL is required, and
// one of Exchange and RoutingKey.
type DeadLetterConfig struct {
	// URL says where the broker is, as in Config.
	URL string
	// Exchange is where dead letters are published: usually the dead-letter
	// exchange of the queue that they come from. It must exist, and route them
	// to a queue. Empty means the default exchange, which needs a RoutingKey: the
	// name of a queue.
	Exchange string
	// RoutingKey is that of all dead letters. Empty means that they keep their
	// own.
	RoutingKey string

	// ConnectionName names the connection in the broker. Empty means the
	// connection_name in AMQP.Properties, or else "ackafter dead letters".
	ConnectionName string
	// AMQP configures the client, as in Config.
	AMQP amqp.Config
	// DialTimeout, WriteTimeout and CloseTimeout are as in Config, with the same
	// defaults.
	DialTimeout, WriteTimeout, CloseTimeout time.Duration
}

// DeadLetter publishes dead letters to an exchange. It implements
// consumer.DeadLetter, and Validator and Checker of the same package.
//
// It has a connection of its own, which the first Publish opens, as does any
// that finds it lost. Close closes it; the runner does that at the end of Run.
// Several runners may share a DeadLetter: a Publish after a Close connects
// again. It is safe for concurrent use, and publishes one message at a time.
type DeadLetter struct {
	config  DeadLetterConfig
	dialer  *Source // to connect with
	invalid error
	turn    chan struct{} // holds a token while nobody uses link
	link    *outlet       // nil while there is no connection
}

// outlet is a link to publish on.
type outlet struct {
	*link
	returns chan amqp.Return // has room for the one that may come
}

// NewDeadLetter returns the dead letters that c describes, or every mistake in c.
// It connects to nothing.
func NewDeadLetter(c DeadLetterConfig) (*DeadLetter, error) {
	d := &DeadLetter{config: c, turn: make(chan struct{}, 1)}
	d.turn <- struct{}{}
	d.dialer = newSource(Config{
		URL: c.URL, Queue: "dead letters", ConnectionName: c.ConnectionName, AMQP: c.AMQP,
		DialTimeout: c.DialTimeout, WriteTimeout: c.WriteTimeout, CloseTimeout: c.CloseTimeout,
	})
	d.invalid = d.dialer.invalid
	if c.Exchange == "" && c.RoutingKey == "" {
		d.invalid = errors.Join(d.invalid, errors.New("rabbitmq: DeadLetterConfig.Exchange and RoutingKey are empty: "+
			"the default exchange would bring a message back to the queue that it comes from"))
	}
	for field, value := range map[string]string{"Exchange": c.Exchange, "RoutingKey": c.RoutingKey} {
		if len(value) > 255 {
			d.invalid = errors.Join(d.invalid, fmt.Errorf("rabbitmq: DeadLetterConfig.%s has %d bytes: AMQP allows 255", field, len(value)))
		}
	}
	if d.invalid != nil {
		return nil, d.invalid
	}
	return d, nil
}

// Validate returns an error for a DeadLetter that NewDeadLetter did not make.
func (d *DeadLetter) Validate() error {
	if d.turn == nil {
		return errors.New("rabbitmq: make the dead letters with NewDeadLetter")
	}
	return d.invalid
}

// Check connects once, and looks the exchange up, or the queue behind the
// default one. Whether the exchange routes anything, and whether this user may
// write to it, only a Publish can tell.
func (d *DeadLetter) Check(ctx context.Context, _ consumer.Plan) error {
	l, err := d.open(ctx)
	if err != nil {
		return err
	}
	defer l.close(d.dialer.config.CloseTimeout)
	release := closeWhenDone(ctx, l.socket)
	defer release()
	if d.config.Exchange != "" {
		err = l.ch.ExchangeDeclarePassive(d.config.Exchange, amqp.ExchangeDirect, true, false, false, false, nil)
	} else {
		_, err = l.ch.QueueDeclarePassive(d.config.RoutingKey, true, false, false, false, nil)
	}
	return d.explain(ctx, err)
}

// Publish publishes a message, mandatory and persistent, and waits for the
// broker's confirmation. It implements consumer.DeadLetter; see deadPublishing
// for what is kept.
func (d *DeadLetter) Publish(ctx context.Context, f consumer.Failure) error {
	p, err := deadPublishing(f)
	if err != nil {
		return err
	}
	key := or(d.config.RoutingKey, f.Message.Topic)
	if queue := queueOf(f.Message.Position); d.config.Exchange == "" && key == queue {
		return fmt.Errorf("rabbitmq: DeadLetterConfig.RoutingKey is %q, the queue that the message came from: it would come back", queue)
	}
	select {
	case <-d.turn:
		defer func() { d.turn <- struct{}{} }()
	case <-ctx.Done():
		return outage(ctx.Err(), "no turn to publish a dead letter: %v", ctx.Err())
	}
	if d.link != nil && d.link.ch.IsClosed() {
		d.drop()
	}
	if d.link == nil {
		if d.link, err = d.open(ctx); err != nil {
			return err
		}
	}
	usable, err := d.link.publish(ctx, d.config.Exchange, key, p)
	if !usable {
		err = d.explain(ctx, err)
		d.drop()
	}
	return err
}

// publish publishes mandatory, and waits for the confirmation. When ctx ends
// first it closes the socket: nothing else interrupts the client, and a
// confirmation that comes later must not be taken for another's. It tells whether
// the link can still be used; when it cannot the error is the reason.
func (l *outlet) publish(ctx context.Context, exchange, key string, p amqp.Publishing) (usable bool, err error) {
	release := closeWhenDone(ctx, l.socket)
	defer release()
	confirmation, err := l.ch.PublishWithDeferredConfirm(exchange, key, true, false, p)
	if err != nil {
		return false, err
	}
	select {
	case <-confirmation.Done(): // also when the channel is closed
	case <-ctx.Done():
		return false, ctx.Err()
	}
	select {
	case r, ok := <-l.returns: // which comes before the confirmation
		if !ok { // closed with the channel
			break
		}
		return true, fmt.Errorf("rabbitmq: the exchange %q returns a dead letter with the routing key %q: no queue is bound to it with that key (%s): "+
			"bind one, or set DeadLetterConfig.RoutingKey", exchange, key, r.ReplyText)
	default:
	}
	switch {
	case confirmation.Acked():
		return true, nil
	case !l.ch.IsClosed():
		return true, outage(errNacked, "a queue behind the exchange %q does not take a dead letter with the routing key %q now: is it full (x-overflow)?", exchange, key)
	}
	select {
	case reason := <-l.closed:
		if reason != nil {
			return false, reason
		}
	default:
	}
	return false, amqp.ErrClosed
}

// Close closes the connection, once no Publish uses it. A later Publish opens
// another one.
func (d *DeadLetter) Close() error {
	if d.turn == nil {
		return nil
	}
	<-d.turn // Publish has it for as long as its context at most
	defer func() { d.turn <- struct{}{} }()
	if d.link != nil {
		d.link.close(d.dialer.config.CloseTimeout)
		d.link = nil
	}
	return nil
}

func (d *DeadLetter) drop() {
	d.link.abort()
	d.link = nil
}

func (d *DeadLetter) open(ctx context.Context) (*outlet, error) {
	o := &outlet{returns: make(chan amqp.Return, 1)}
	l, err := d.dialer.connect(ctx, func(l *link) error {
		l.closed = l.ch.NotifyClose(make(chan *amqp.Error, 1))
		l.ch.NotifyReturn(o.returns)
		return l.ch.Confirm(false)
	})
	if err != nil {
		return nil, err
	}
	o.link = l
	return o, nil
}

// explain says why a dead letter could not be published, and what would help.
func (d *DeadLetter) explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	exchange, addr := d.config.Exchange, address(d.dialer.uri)
	if cause := context.Cause(ctx); cause != nil {
		return outage(errors.Join(cause, err), "%s does not confirm a dead letter: %v (is it blocked by an alarm of memory or disk?)", addr, cause)
	}
	var answer *amqp.Error
	if !errors.As(err, &answer) || !answer.Server || passes(answer.Reason) {
		return outage(err, "the connection to %s broke under a dead letter: %v", addr, err)
	}
	switch answer.Code {
	case amqp.NotFound:
		if exchange == "" {
			return fmt.Errorf("rabbitmq: the queue %q does not exist in vhost %q: create it, or correct DeadLetterConfig.RoutingKey: %w", d.config.RoutingKey, d.dialer.vhost(), err)
		}
		return fmt.Errorf("rabbitmq: the exchange %q does not exist in vhost %q: create it, or correct DeadLetterConfig.Exchange: %w", exchange, d.dialer.vhost(), err)
	case amqp.AccessRefused:
		return fmt.Errorf("rabbitmq: the user %q may not write to the exchange %q in vhost %q: grant it (rabbitmqctl set_permissions): %w", d.dialer.user(), exchange, d.dialer.vhost(), err)
	case amqp.PreconditionFailed, amqp.ContentTooLarge, amqp.FrameError:
		return fmt.Errorf("rabbitmq: %w: %s does not accept this dead letter: %w", consumer.ErrRefused, addr, err)
	}
	return outage(err, "%s has closed the channel under a dead letter: %v", addr, err)
}

var errNacked = errors.New("not confirmed (basic.nack)")
