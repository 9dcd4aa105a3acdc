package memory

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/ackafter/ackafter/consumer"
)

// errLost is what Ack returns once another stream may own the messages.
var errLost = errors.New("memory: the stream was lost, and its messages are delivered again")

// stream reads one queue while it owns it. The messages stay in the queue.
type stream struct {
	queue  *queue
	done   <-chan struct{}    // closed when Next has nothing more to give
	cancel context.CancelFunc // closes done, and ends serve's context
}

// delivery is the Raw of a message: what Ack needs to know of it.
type delivery struct {
	message consumer.Message
	id      string // as published
	stream  *stream
	offset  int64
}

func (s *stream) Name() string { return s.queue.name }

func (s *stream) Next(ctx context.Context, n int) ([]*consumer.Message, error) {
	for {
		select {
		case <-s.done:
			s.queue.signal() // the token may have been meant for the next owner
			return nil, io.EOF
		default:
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if ms := s.queue.take(s, max(n, 1)); ms != nil {
			return ms, nil
		}
		select {
		case <-s.done:
		case <-ctx.Done():
		case <-s.queue.wake:
		}
	}
}

func (s *stream) Ack(ctx context.Context, ms ...*consumer.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, m := range ms {
		if d, ok := m.Raw.(*delivery); !ok || d.stream != s {
			return fmt.Errorf("memory: the message at %s was not delivered by this stream", m.Position)
		}
	}
	if !s.queue.ack(s, ms) {
		return errLost
	}
	return nil
}
