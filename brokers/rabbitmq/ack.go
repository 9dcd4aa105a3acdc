package rabbitmq

import (
	"context"
	"fmt"

	"github.com/ackafter/ackafter/consumer"
)

// flush is a set of acknowledgements, and of the opposite, that are written
// together.
type flush struct {
	tags     []uint64      // to be acknowledged
	released []uint64      // to be requeued
	done     chan struct{} // closed when they are written, or have failed
	err      error         // why they have failed; to be read after done
}

// Ack hands ms to the goroutine that writes acknowledgements, and waits until
// they are written or ctx ends. A write is all there is: AMQP has no answer to
// an acknowledgement.
func (s *stream) Ack(ctx context.Context, ms ...*consumer.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.write(ctx, ms, func(f *flush, tag uint64) { f.tags = append(f.tags, tag) })
}

// Release requeues ms, which the broker delivers again to anyone. It implements
// consumer.Releaser.
func (s *stream) Release(ctx context.Context, ms ...*consumer.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.write(ctx, ms, func(f *flush, tag uint64) { f.released = append(f.released, tag) })
}

// write waits until ms are written as add says, or ctx ends.
func (s *stream) write(ctx context.Context, ms []*consumer.Message, add func(f *flush, tag uint64)) error {
	f, err := s.enqueue(ms, add)
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

// enqueue settles ms and returns the flush that they are in: nil when they were
// settled before.
func (s *stream) enqueue(ms []*consumer.Message, add func(f *flush, tag uint64)) (*flush, error) {
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
		add(f, d.raw.DeliveryTag)
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
// What is released goes first, or multiple would acknowledge it.
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
	for _, tag := range f.released {
		if f.add(requeue(s.ch, tag)); f.err != nil {
			return
		}
	}
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
		f.err = fmt.Errorf("rabbitmq: not written, and the messages are delivered again: %w", err)
	}
}
