package rabbitmq

import (
	"context"
	"fmt"
	"io"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/ackafter/ackafter/consumer"
)

// stream is one epoch of the queue. It keeps the deliveries that are not
// settled, at most Config.Prefetch of them, in the order of their tags.
type stream struct {
	name     string
	position string // of a message, without its tag
	ch       *amqp.Channel
	key      func(*amqp.Delivery) []byte
	wake     chan struct{} // holds a token when something was delivered
	ended    chan struct{} // closed when Next has nothing more to give
	acks     chan struct{} // holds a token when something is to be written
	closed   chan struct{} // closed when no Ack is accepted any more

	mostWaiting int // acknowledgements that may wait for those before them

	mu          sync.Mutex
	first, last *delivery // not settled, by ascending tag
	fresh       *delivery // the first of them that Next has not returned
	pending     *flush    // to be acknowledged next; nil when nothing is
	over        bool      // set by close
	broken      error     // why Next ended the stream by itself
}

func newStream(c Config, ch *amqp.Channel) *stream {
	name := "queue " + c.Queue
	return &stream{
		name:     name,
		position: name + " #",
		ch:       ch,
		key:      c.Key,
		wake:     make(chan struct{}, 1),
		ended:    make(chan struct{}),
		acks:     make(chan struct{}, 1),
		closed:   make(chan struct{}),

		mostWaiting: c.Prefetch / 2,
	}
}

// pump takes deliveries from the client as they come. The client's channel
// has no room, so that otherwise no second message would ever be waiting.
func (s *stream) pump(deliveries <-chan amqp.Delivery) {
	for raw := range deliveries {
		d := &delivery{raw: raw, stream: s}
		d.raw.Acknowledger = d
		s.mu.Lock()
		s.push(d)
		s.mu.Unlock()
		signal(s.wake)
	}
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Name returns "queue " and the queue's name.
func (s *stream) Name() string { return s.name }

func (s *stream) Next(ctx context.Context, n int) ([]*consumer.Message, error) {
	for {
		select {
		case <-s.ended:
			return nil, io.EOF
		default:
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		ms, err := s.take(max(n, 1))
		if err != nil {
			s.fail(err)
			return ms, io.EOF
		}
		if ms != nil {
			return ms, nil
		}
		select {
		case <-s.ended:
		case <-ctx.Done():
		case <-s.wake:
		}
	}
}

// take returns the next messages, at most n: none when nothing waits.
func (s *stream) take(n int) ([]*consumer.Message, error) {
	var ms []*consumer.Message
	for _, d := range s.takeFresh(n) {
		if err := s.fill(d); err != nil {
			return ms, err
		}
		ms = append(ms, &d.message)
	}
	return ms, nil
}

// fill makes the message of a delivery. Config.Key is the user's, and may
// panic; the same message would make it panic again.
func (s *stream) fill(d *delivery) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("rabbitmq: Config.Key panicked for the message with id %.100q, which is not acknowledged: %v",
				d.raw.MessageId, v)
		}
	}()
	d.message = s.message(&d.raw)
	return nil
}

func (s *stream) takeFresh(n int) []*delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ds []*delivery
	for ; s.fresh != nil && len(ds) < n; s.fresh = s.fresh.next {
		ds = append(ds, s.fresh)
	}
	return ds
}

// fail notes why nothing more can come of the stream.
func (s *stream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = err
}

func (s *stream) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broken
}

// end makes Next return io.EOF.
func (s *stream) end() { close(s.ended) }

// handBack returns to the queue what Next has not returned, now rather than
// when serve is done. It calls after end, and after pump has returned.
func (s *stream) handBack() {
	s.mu.Lock()
	d := s.fresh
	s.fresh = nil
	if d != nil { // they are the last ones of the list
		s.cut(d)
	}
	s.mu.Unlock()
	for ; d != nil; d, d.next = d.next, nil {
		if err := requeue(s.ch, d.raw.DeliveryTag); err != nil {
			return // the channel is closed, which hands back everything
		}
	}
}

// requeue gives one delivery back: by nack, not reject, since from RabbitMQ 4.3
// on a nack does not count against the delivery limit.
func requeue(ch *amqp.Channel, tag uint64) error { return ch.Nack(tag, false, true) }
