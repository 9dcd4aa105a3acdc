// Package limit bounds waits that follow each other quickly, and hardly ever
// reach their end. A context.WithTimeout starts a timer each, and whenever a new
// timer is the first to be due the Go runtime wakes a thread for it: with a few
// of them per message, that cost a worker a twentieth of its throughput.
package limit

import (
	"context"
	"sync"
	"time"
)

// Timer gives contexts a deadline, one context after the other, from one timer
// that is left running in between. The zero value is ready to use. It is safe
// for concurrent use, but has one context at a time.
type Timer struct {
	mu     sync.Mutex
	timer  *time.Timer
	due    time.Time               // of timer; zero while it is not running
	ends   time.Time               // of the context
	cancel context.CancelCauseFunc // nil while there is no context
}

// Context is like context.WithTimeout. The context before must have been
// cancelled. Contexts that are derived from it end as cancelled, with
// context.DeadlineExceeded for a cause.
func (t *Timer) Context(parent context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	inner, cancel := context.WithCancelCause(parent)
	ctx := &limited{inner, time.Now().Add(limit)}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ends, t.cancel = ctx.ends, cancel
	if t.due.IsZero() || t.ends.Before(t.due) {
		t.run()
	}
	return ctx, func() {
		t.mu.Lock()
		t.cancel = nil
		t.mu.Unlock()
		cancel(context.Canceled)
	}
}

// Stop ends the timer. A later Context starts it again.
func (t *Timer) Stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer != nil {
		t.timer.Stop()
	}
	t.due = time.Time{}
}

// run lets the timer be due when the context ends.
func (t *Timer) run() {
	t.due = t.ends
	if t.timer == nil {
		t.timer = time.AfterFunc(time.Until(t.due), t.fire)
		return
	}
	t.timer.Reset(time.Until(t.due))
}

func (t *Timer) fire() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.due = time.Time{}
	switch {
	case t.cancel == nil:
	case time.Now().Before(t.ends):
		t.run()
	default:
		t.cancel(context.DeadlineExceeded)
		t.cancel = nil
	}
}

type limited struct {
	context.Context
	ends time.Time
}

func (c *limited) Deadline() (time.Time, bool) {
	if earlier, ok := c.Context.Deadline(); ok && earlier.Before(c.ends) {
		return earlier, true
	}
	return c.ends, true
}

func (c *limited) Err() error {
	err := c.Context.Err()
	if err != nil && context.Cause(c.Context) == context.DeadlineExceeded {
		return context.DeadlineExceeded
	}
	return err
}
