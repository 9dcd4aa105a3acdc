package rabbitmq

import (
	"errors"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/ackafter/ackafter/consumer"
)

// delivery is one delivery of one message, in its stream's list while it is
// not settled. A message leads back to it through Raw, whose Acknowledger it
// is.
type delivery struct {
	raw        amqp.Delivery
	message    consumer.Message
	stream     *stream
	prev, next *delivery
	settled    bool
}

var errNotYours = errors.New("rabbitmq: a delivery in Message.Raw cannot be acknowledged: that happens by itself, after the commit")

// Ack, Nack and Reject make the delivery in Message.Raw an amqp091.Delivery
// that a handler can read, but not acknowledge before the commit.
func (d *delivery) Ack(uint64, bool) error        { return errNotYours }
func (d *delivery) Nack(uint64, bool, bool) error { return errNotYours }
func (d *delivery) Reject(uint64, bool) error     { return errNotYours }

// deliveryOf returns the delivery of m, or nil when m is from elsewhere.
func deliveryOf(m *consumer.Message) *delivery {
	raw, ok := m.Raw.(*amqp.Delivery)
	if !ok {
		return nil
	}
	d, _ := raw.Acknowledger.(*delivery)
	return d
}

// push appends d to the list. The caller holds s.mu.
func (s *stream) push(d *delivery) {
	if d.prev = s.last; d.prev == nil {
		s.first = d
	} else {
		d.prev.next = d
	}
	s.last = d
	if s.fresh == nil {
		s.fresh = d
	}
}

// settle takes d from the list. The caller holds s.mu.
func (s *stream) settle(d *delivery) {
	d.settled = true
	if d.prev == nil {
		s.first = d.next
	} else {
		d.prev.next = d.next
	}
	if d.next == nil {
		s.last = d.prev
	} else {
		d.next.prev = d.prev
	}
	d.prev, d.next = nil, nil // a handler may keep the message, and then the others with it
}

// cut takes d and all that follow from the list. The caller holds s.mu.
func (s *stream) cut(d *delivery) {
	if s.last = d.prev; s.last == nil {
		s.first = nil
	} else {
		s.last.next = nil
	}
	d.prev = nil
	for ; d != nil; d = d.next {
		d.settled = true
	}
}
