package kafka

import (
	"context"
	"sync"
)

// buffer holds batches between the goroutine that fetches them and the one
// that reads the stream. It takes in batches as long as they come to less than
// limit bytes, so it holds at most limit and one batch.
type buffer struct {
	limit int
	wake  chan struct{} // holds a token when a batch came in
	room  chan struct{} // holds a token when one was taken out

	mu      sync.Mutex
	batches []*batch
	bytes   int
}

func newBuffer(limit int) *buffer {
	return &buffer{limit: limit, wake: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

// wait waits for room, and returns ctx's error when ctx ended first.
func (f *buffer) wait(ctx context.Context) error {
	for f.full() {
		select {
		case <-f.room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (f *buffer) full() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bytes >= f.limit
}

// add takes in a batch. The one that fetches has waited for room.
func (f *buffer) add(b *batch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.batches = append(f.batches, b)
	b.weight = len(b.data) + batchHeader // before anybody reads from it
	f.bytes += b.weight
	signal(f.wake)
}

// pop returns the next batch, or nil when there is none.
func (f *buffer) pop() *batch {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.batches) == 0 {
		return nil
	}
	b := f.batches[0]
	f.batches[0] = nil
	f.batches = f.batches[1:]
	f.bytes -= b.weight
	signal(f.room)
	return b
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
