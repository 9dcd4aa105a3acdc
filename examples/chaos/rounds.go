package main

import (
	"context"
	"fmt"
	"time"
)

// Limits on what takes milliseconds when all is well.
const (
	servingLimit = 20 * time.Second // a worker connects
	loadLimit    = 30 * time.Second // the workers get on to the next kill
	heldLimit    = 8 * time.Second  // less than consumer.Config.AckTimeout, at which Ack gives up
	settleLimit  = 30 * time.Second // the workers empty the queue
)

// run publishes the orders in rounds, with a kill in each but the last. A kill
// comes at a random moment of its round, right after the next one was
// published: so there is always something to interrupt.
func (d *drill) run(ctx context.Context, orders []order) error {
	if err := d.publish(ctx, d.round(orders, 0)); err != nil {
		return err
	}
	for k := range d.kills {
		begin, size := d.start(k), d.start(k+1)-d.start(k)
		target := begin + d.random.IntN(size)
		err := d.crew.await(ctx, "the workers to make progress", loadLimit, func() bool {
			return len(d.crew.tally.settled) >= target
		})
		if err != nil {
			return err
		}
		if err := d.strike(ctx, k%2 == 0, d.round(orders, k+1)); err != nil {
			return err
		}
	}
	return d.settle(ctx)
}

// start returns the number of the first order of a round.
func (d *drill) start(round int) int { return d.messages * round / (d.kills + 1) }

func (d *drill) round(orders []order, round int) []order {
	return orders[d.start(round):d.start(round+1)]
}

func (d *drill) publish(ctx context.Context, orders []order) error {
	messages := withDuplicates(orders, d.duplicates, d.random)
	if err := d.queue.publish(ctx, messages); err != nil {
		return err
	}
	d.crew.mu.Lock()
	defer d.crew.mu.Unlock()
	d.published += len(messages)
	return nil
}

// strike kills a random worker while the next round arrives: at whatever it is
// doing, or between a commit and its acknowledgement. A worker is armed before
// the round is published, so that there are messages for it.
func (d *drill) strike(ctx context.Context, afterCommit bool, next []order) error {
	victim, err := d.victim(ctx)
	if err != nil {
		return err
	}
	if afterCommit {
		if err := victim.arm(); err != nil {
			return err
		}
	}
	if err := d.publish(ctx, next); err != nil {
		return err
	}
	if afterCommit {
		what := fmt.Sprintf("worker %d to commit", victim.number)
		err = d.crew.await(ctx, what, heldLimit, func() bool { return victim.held })
	} else {
		err = pause(ctx, time.Duration(d.random.Int64N(int64(30*time.Millisecond))))
	}
	if err != nil {
		return err
	}
	if err := d.crew.kill(ctx, victim, true); err != nil {
		return err
	}
	d.crew.mu.Lock()
	defer d.crew.mu.Unlock()
	d.killed++
	if afterCommit {
		d.held++
	}
	return nil
}

// victim returns a random worker that is at work.
func (d *drill) victim(ctx context.Context) (*member, error) {
	var ready []*member
	err := d.crew.await(ctx, "a worker to be at work", servingLimit, func() bool {
		ready = ready[:0]
		for _, m := range d.crew.members {
			if m.streams > 0 && !m.dismissed {
				ready = append(ready, m)
			}
		}
		return len(ready) > 0
	})
	if err != nil {
		return nil, err
	}
	return ready[d.random.IntN(len(ready))], nil
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
