package kafka

import (
	"testing"
	"time"
)

// Whichever of the two is set, the shortest wait is not above the longest one.
func TestBackoffDefaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ min, max, wantMin, wantMax time.Duration }{
		{0, 0, 100 * time.Millisecond, 5 * time.Second},
		{0, 50 * time.Millisecond, 50 * time.Millisecond, 50 * time.Millisecond},
		{0, time.Second, 100 * time.Millisecond, time.Second},
		{10 * time.Second, 0, 10 * time.Second, 10 * time.Second},
		{2 * time.Second, 3 * time.Second, 2 * time.Second, 3 * time.Second},
	} {
		got := Config{BackoffMin: c.min, BackoffMax: c.max}.withDefaults()
		if got.BackoffMin != c.wantMin || got.BackoffMax != c.wantMax {
			t.Errorf("%v and %v become %v and %v", c.min, c.max, got.BackoffMin, got.BackoffMax)
		}
	}
}
