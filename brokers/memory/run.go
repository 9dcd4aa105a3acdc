package memory

import (
	"context"
	"sync"

	"github.com/ackafter/ackafter/consumer"
)

// Run serves the streams that no other Run owns, and those that become free,
// until ctx ends. It implements consumer.Source. Several Runs may share a
// broker: each stream has one owner at a time, and the others stand by.
func (b *Broker) Run(ctx context.Context, serve func(context.Context, consumer.Stream) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	var failed error
	var once sync.Once
	for _, q := range b.queues {
		wg.Go(func() {
			if err := q.run(ctx, serve); err != nil {
				once.Do(func() { failed = err })
				cancel(err)
			}
		})
	}
	wg.Wait()
	return failed
}

// run serves one stream of q after the other until ctx ends or serve fails.
func (q *queue) run(ctx context.Context, serve func(context.Context, consumer.Stream) error) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-q.free:
		}
		if ctx.Err() != nil { // both were ready
			q.free <- struct{}{}
			return nil
		}
		if err := q.serve(ctx, serve); err != nil {
			return err
		}
	}
}

// serve opens a stream, calls serve with it, and gives the stream up.
func (q *queue) serve(ctx context.Context, serve func(context.Context, consumer.Stream) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &stream{queue: q, done: ctx.Done(), cancel: cancel}
	q.open(s)
	defer q.release(s)
	return serve(ctx, s)
}
