package kafka

import (
	"context"
	"math/rand/v2"
	"time"
)

// backoff is an exponential wait with jitter.
type backoff struct {
	min, max time.Duration
	next     time.Duration // zero means min
}

// wait waits for the next interval, or until ctx ends.
func (b *backoff) wait(ctx context.Context) {
	timer := time.NewTimer(b.step())
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// step returns the next interval: between a half and all of what the doubling
// has come to.
func (b *backoff) step() time.Duration {
	d := max(b.next, b.min)
	b.next = min(2*d, b.max)
	return d - rand.N(d/2+1)
}

func (b *backoff) reset() { b.next = 0 }
