package main

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/ackafter/ackafter/consumer"
)

// failpoint is a worker's source with two additions. It reports to the parent
// what is delivered, before the runner gets it, and what is settled. And
// once it is armed it acknowledges nothing any more: the runner calls Ack only
// when a commit is known to have succeeded, so that a worker which is killed
// in there dies between the two.
type failpoint struct {
	consumer.Source
	parent    *parentPipe
	messageID consumer.IDFunc
	armed     atomic.Bool
}

// Check lets the source inside check itself.
func (f *failpoint) Check(ctx context.Context, p consumer.Plan) error {
	if c, ok := f.Source.(consumer.Checker); ok {
		return c.Check(ctx, p)
	}
	return nil
}

// Run wraps each stream.
func (f *failpoint) Run(ctx context.Context, serve func(context.Context, consumer.Stream) error) error {
	return f.Source.Run(ctx, func(ctx context.Context, s consumer.Stream) error {
		f.parent.report(lineServing)
		wrapped := &failpointStream{Stream: s, failpoint: f, open: make(map[string]int)}
		defer func() { f.parent.report(lineEnded, wrapped.left()...) }()
		return serve(ctx, wrapped)
	})
}

type failpointStream struct {
	consumer.Stream
	*failpoint

	mu   sync.Mutex
	open map[string]int // delivered and not settled, by id
}

func (s *failpointStream) Next(ctx context.Context, n int) ([]*consumer.Message, error) {
	ms, err := s.Stream.Next(ctx, n)
	if len(ms) > 0 {
		s.parent.report(lineDelivered, s.count(ms, 1)...)
	}
	return ms, err
}

func (s *failpointStream) Ack(ctx context.Context, ms ...*consumer.Message) error {
	if s.armed.Load() {
		s.parent.report(lineHeld, s.ids(ms)...)
		<-ctx.Done() // SIGKILL comes first
		return ctx.Err()
	}
	// Before the acknowledgement, after which the message does not come again:
	// a kill in between would hide it from the parent for ever.
	s.parent.report(lineSettled, s.count(ms, -1)...)
	return s.Stream.Ack(ctx, ms...)
}

// count notes that messages were delivered or settled, and returns their ids.
func (s *failpointStream) count(ms []*consumer.Message, n int) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := s.ids(ms)
	for _, id := range ids {
		s.open[id] += n
	}
	return ids
}

// left returns the ids of what was delivered and not settled.
func (s *failpointStream) left() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for id, n := range s.open {
		ids = append(ids, slices.Repeat([]string{id}, max(n, 0))...)
	}
	return ids
}

func (s *failpointStream) ids(ms []*consumer.Message) []string {
	ids := make([]string, len(ms))
	for i, m := range ms {
		id, err := s.messageID(m)
		if err != nil || strings.ContainsAny(id, " \n") {
			id = "unidentified" // counted, and then refused by the runner
		}
		ids[i] = id
	}
	return ids
}
