package rabbitmq

import (
	"context"
	"fmt"
	"slices"
	"time"

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
// they are written, or wait for others, or ctx ends. A write is all there is:
// AMQP has no answer to an acknowledgement.
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
	w := newAckWriter(s)
	defer w.late.Stop()
	for {
		select {
		case <-s.acks:
			w.flush(false)
		case <-w.late.C:
			w.flush(true)
		case <-s.closed:
			w.flush(true)
			return
		}
	}
}

// ackWriter writes the acknowledgements of a stream. Those above a message that
// is not settled yet wait a little: mostly that one follows at once, and then one
// frame stands for all of them.
type ackWriter struct {
	*stream
	waiting []uint64 // tags
	late    *time.Timer
}

func newAckWriter(s *stream) *ackWriter {
	w := &ackWriter{stream: s, late: time.NewTimer(0)}
	w.late.Stop() // until something waits
	return w
}

// ackDelay is how long an acknowledgement may wait for those before it.
const ackDelay = 20 * time.Millisecond

// flush writes what is pending. The highest tag below everything unsettled
// stands for all tags up to it (multiple); the others are written one by one,
// when all is to be written, or they take up too much of the prefetch. What is
// released goes first, or multiple would acknowledge it.
func (w *ackWriter) flush(all bool) {
	w.mu.Lock()
	f := w.pending
	w.pending = nil
	unsettled := ^uint64(0)
	if w.first != nil {
		unsettled = w.first.raw.DeliveryTag
	}
	w.mu.Unlock()
	if f == nil {
		f = &flush{done: make(chan struct{})}
	}
	defer close(f.done)
	for _, tag := range f.released {
		if f.add(requeue(w.ch, tag)); f.err != nil {
			return
		}
	}
	idle := len(w.waiting) == 0
	w.waiting = append(w.waiting, f.tags...)
	w.writeUpTo(f, unsettled)
	if all || len(w.waiting) > w.mostWaiting {
		for _, tag := range w.waiting {
			if f.err == nil {
				f.add(w.ch.Ack(tag, false))
			}
		}
		w.waiting = w.waiting[:0]
	}
	if idle && len(w.waiting) > 0 {
		w.late.Reset(ackDelay)
	}
}

// writeUpTo writes one acknowledgement for what waits below unsettled.
func (w *ackWriter) writeUpTo(f *flush, unsettled uint64) {
	upTo, covered := uint64(0), 0
	w.waiting = slices.DeleteFunc(w.waiting, func(tag uint64) bool {
		if tag > unsettled {
			return false
		}
		upTo = max(upTo, tag)
		covered++
		return true
	})
	if covered > 0 {
		f.add(w.ch.Ack(upTo, covered > 1))
	}
}

func (f *flush) add(err error) {
	if err != nil {
		f.err = fmt.Errorf("rabbitmq: not written, and the messages are delivered again: %w", err)
	}
}
