package main

import (
	"context"
	"fmt"
	"time"
)

// pollInterval is between two looks at the broker, which does not call back.
const pollInterval = 20 * time.Millisecond

// settle waits until every message is settled, and stops the workers. While
// they are connected nobody can tell what the broker has sent them; so it
// stops them when they look idle, and starts others if something is left.
func (d *drill) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, settleLimit,
		fmt.Errorf("the queue was not empty and acknowledged within %v", settleLimit))
	defer cancel()
	for {
		if err := d.poll(ctx, func(ready, _ int) bool { return ready == 0 && d.crew.idle() }); err != nil {
			return err
		}
		if err := d.crew.stop(ctx); err != nil {
			return err
		}
		left := 0
		err := d.poll(ctx, func(ready, consumers int) bool {
			left = ready
			return consumers == 0
		})
		if err != nil || left == 0 {
			return err
		}
		if err := d.crew.hire(d.workers); err != nil {
			return err
		}
	}
}

// poll looks at the queue until done returns true.
func (d *drill) poll(ctx context.Context, done func(ready, consumers int) bool) error {
	for {
		ready, consumers, err := d.queue.state()
		if err != nil {
			return err
		}
		if done(ready, consumers) {
			return nil
		}
		if err := pause(ctx, pollInterval); err != nil {
			return err
		}
	}
}

// idle tells whether all workers are connected and have settled all that was
// delivered to them, as far as they have reported.
func (c *crew) idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.members {
		if m.streams == 0 || m.open > 0 {
			return false
		}
	}
	return true
}
