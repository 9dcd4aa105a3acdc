package rabbitmq

import (
	"context"
	"fmt"

	"github.com/ackafter/ackafter/consumer"
)

// flush is a set of acknowledgements that are written together.
type flush struct {
	tags []uint64
	done chan struct{} // closed when they are written, or have failed
	err  error         // why they have failed; to be read after done
}

// Ack hands ms to the goroutine that writes acknowledgements, and waits until
// they are written or ctx ends. A write is all there is: AMQP has no answer to
// an acknowledgement.
func (s *stream) Ack(ctx context.Context, ms ...*consumer.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f, err := s.enqueue(ms)
	if f == nil || err != nil {
		return err
	}
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// enqueue settles ms and returns the flush that will acknowledge them: nil
// when they were acknowledged before.
func (s *stream) enqueue(ms []*consumer.Message) (*flush, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range ms {
		if d := deliveryOf(m); d == nil || d.stream != s {
			return nil, fmt.Errorf("%w (%s)", errForeign, m.Position)
		}
	}
	if s.over {
		return nil, errEnded
	}
	var f *flush
	for _, m := range ms {
		d := deliveryOf(m)
		if d.settled {
			continue
		}
		if s.pending == nil {
			s.pending = &flush{done: make(chan struct{})}
		}
		f = s.pending
		f.tags = append(f.tags, d.raw.DeliveryTag)
		s.settle(d)
	}
	if f != nil {
		signal(s.acks)
	}
	return f, nil
}

// close refuses every further Ack, and lets writeAcks return.
func (s *stream) close() {
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	close(s.closed)
}

// writeAcks writes acknowledgements until close, and those before it. It is
// the only one to write them, so that Ack can leave when its context ends
// although a write cannot be interrupted; and what arrives during one write
// is gathered for the next.
func (s *stream) writeAcks() {
	for {
		select {
		case <-s.acks:
			s.flush()
		case <-s.closed:
			s.flush()
			return
		}
	}
}

// flush writes what is pending. The highest tag below everything unsettled
// stands for all tags up to it (multiple); the others are written one by one.
func (s *stream) flush() {
	s.mu.Lock()
	f := s.pending
	s.pending = nil
	unsettled := ^uint64(0)
	if s.first != nil {
		unsettled = s.first.raw.DeliveryTag
	}
	s.mu.Unlock()
	if f == nil {
		return
	}
	defer close(f.done)
	upTo, covered := uint64(0), 0
	for _, tag := range f.tags {
		if tag < unsettled {
			upTo = max(upTo, tag)
			covered++
		}
	}
	if covered > 0 {
		f.add(s.ch.Ack(upTo, covered > 1))
	}
	for _, tag := range f.tags {
		if tag > unsettled && f.err == nil {
			f.add(s.ch.Ack(tag, false))
		}
	}
}

func (f *flush) add(err error) {
	if err != nil {
		f.err = fmt.Errorf("rabbitmq: the acknowledgement was not written, and the messages are delivered again: %w", err)
	}
}
