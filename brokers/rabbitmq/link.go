package rabbitmq

import (
	"context"
	"crypto/rand"
	"maps"
	"net"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// link is one connection with one channel: what an epoch is made of.
type link struct {
	socket *socket
	conn   *amqp.Connection
	ch     *amqp.Channel

	// These are there once consume has returned. At most one value arrives
	// on closed and on cancelled, and both have room for it, so nothing in
	// the client waits for a reader.
	tag        string
	deliveries <-chan amqp.Delivery
	closed     chan *amqp.Error
	cancelled  chan string
}

// connect opens a link and runs setup on it, all within Config.DialTimeout.
// Its errors are explained.
func (s *Source) connect(ctx context.Context, setup func(*link) error) (*link, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.config.DialTimeout, errDialTimeout)
	defer cancel()
	l := &link{}
	release := func() {}
	defer func() { release() }()

	err := l.open(s.config.URL, s.clientConfig(func(network, addr string) (net.Conn, error) {
		conn, err := s.dial(ctx, network, addr)
		if err != nil {
			return nil, &unreachableError{err}
		}
		l.socket = &socket{Conn: conn, limit: s.config.WriteTimeout}
		release = closeWhenDone(ctx, l.socket)
		return l.socket, nil
	}))
	if err != nil {
		err = s.explainOpen(context.Cause(ctx), err)
	} else if err = setup(l); err != nil {
		err = s.explainChannel(context.Cause(ctx), err)
	}
	if err != nil {
		l.abort()
		return nil, err
	}
	return l, nil
}

// dial opens the TCP connection.
func (s *Source) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if dial := s.config.AMQP.Dial; dial != nil {
		return dial(network, addr)
	}
	var d net.Dialer
	return d.DialContext(ctx, network, addr)
}

// clientConfig returns a configuration for one connection. The client writes
// into what it gets, so it gets copies.
func (s *Source) clientConfig(dial func(network, addr string) (net.Conn, error)) amqp.Config {
	c := s.config.AMQP
	c.Dial = dial
	if c.TLSClientConfig != nil {
		c.TLSClientConfig = c.TLSClientConfig.Clone()
	}
	if len(c.Properties) == 0 {
		c.Properties = amqp.NewConnectionProperties()
	} else {
		c.Properties = maps.Clone(c.Properties)
	}
	if _, named := c.Properties["connection_name"]; !named || s.config.ConnectionName != "" {
		c.Properties.SetClientConnectionName(or(s.config.ConnectionName, "ackafter "+s.config.Queue))
	}
	return c
}

func (l *link) open(url string, config amqp.Config) (err error) {
	if l.conn, err = amqp.DialConfig(url, config); err != nil {
		return err
	}
	l.ch, err = l.conn.Channel()
	return err
}

// consume subscribes to the queue.
func (l *link) consume(c Config) error {
	if c.Declare != nil {
		if err := c.Declare.declare(l.ch, c.Queue); err != nil {
			return err
		}
	}
	if err := l.ch.Qos(c.Prefetch, 0, false); err != nil {
		return err
	}
	l.closed = l.ch.NotifyClose(make(chan *amqp.Error, 1))
	l.cancelled = l.ch.NotifyCancel(make(chan string, 1))
	l.tag = c.ConsumerTag + "-" + rand.Text()
	var err error
	l.deliveries, err = l.ch.Consume(c.Queue, l.tag, false, c.Exclusive, false, false, c.ConsumerArguments)
	if err != nil {
		return &consumeError{err}
	}
	return nil
}

// cancel tells the broker to deliver nothing more. Whatever happens, the
// deliveries are closed soon after.
func (l *link) cancel(limit time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	release := closeWhenDone(ctx, l.socket)
	defer release()
	if err := l.ch.Cancel(l.tag, false); err != nil {
		_ = l.socket.Close() // then the client closes the deliveries
	}
}

// close closes the channel, which returns what is not acknowledged to the
// queue, and the connection. When that fails or takes too long the broker
// notices a closed socket instead, with the same effect.
func (l *link) close(limit time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	release := closeWhenDone(ctx, l.socket)
	defer release()
	if l.ch.Close() == nil {
		_ = l.conn.Close()
	}
	l.abort()
}

// abort closes the socket without a farewell, and waits until the client has
// noticed.
func (l *link) abort() {
	if l.socket == nil {
		return
	}
	_ = l.socket.Close()
	if l.conn == nil {
		return
	}
	for range l.conn.NotifyClose(make(chan *amqp.Error, 1)) {
	}
}

// reason returns why the deliveries have closed.
func (l *link) reason(s *Source) error {
	select {
	case err, ok := <-l.closed:
		if ok {
			return s.explainLoss(err)
		}
	default:
	}
	select {
	case <-l.cancelled:
		return errCancelled
	default:
	}
	return errClosed
}
