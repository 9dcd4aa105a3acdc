package main

import (
	"context"
	"strings"
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
		return serve(ctx, &failpointStream{s, f})
	})
}

type failpointStream struct {
	consumer.Stream
	*failpoint
}

func (s *failpointStream) Next(ctx context.Context, n int) ([]*consumer.Message, error) {
	ms, err := s.Stream.Next(ctx, n)
	if len(ms) > 0 {
		s.parent.report(lineDelivered, s.ids(ms)...)
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
	s.parent.report(lineSettled, s.ids(ms)...)
	return s.Stream.Ack(ctx, ms...)
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
