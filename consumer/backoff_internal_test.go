package consumer

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBackoffLimit(t *testing.T) {
	t.Parallel()
	b := Backoff{Min: 3, Max: 50}
	for failures, want := range map[int]time.Duration{0: 3, 1: 3, 2: 6, 3: 12, 4: 24, 5: 48, 6: 50, 7: 50, math.MaxInt: 50} {
		require.Equal(t, want, b.limit(failures), "after %d failures", failures)
	}
	require.Equal(t, time.Duration(5), Backoff{Min: 5, Max: 5}.limit(100))
	longest := Backoff{Min: 1, Max: math.MaxInt64}
	require.Equal(t, time.Duration(math.MaxInt64), longest.limit(1000), "without overflow")
}

func TestBackoffWait(t *testing.T) {
	t.Parallel()
	for _, b := range []Backoff{{Min: 1, Max: 1}, {Min: 100, Max: 1000}, {Min: 1, Max: math.MaxInt64}, {Min: math.MaxInt64, Max: math.MaxInt64}} {
		for _, failures := range []int{1, 2, 5, 100} {
			limit := b.limit(failures)
			shortest, longest := limit, time.Duration(0)
			for range 1000 {
				w := b.wait(failures)
				shortest, longest = min(shortest, w), max(longest, w)
			}
			require.GreaterOrEqual(t, shortest, limit/10)
			require.LessOrEqual(t, longest, limit)
			require.LessOrEqual(t, shortest, limit/10+limit/20+1, "it is spread over the whole range")
			require.GreaterOrEqual(t, longest, limit-limit/20-1)
		}
	}
}

func TestBackoffDefaults(t *testing.T) {
	t.Parallel()
	require.Equal(t, Backoff{10, 100}, Backoff{}.withDefaults(10, 100))
	require.Equal(t, Backoff{20, 100}, Backoff{Min: 20}.withDefaults(10, 100))
	require.Equal(t, Backoff{200, 200}, Backoff{Min: 200}.withDefaults(10, 100))
	require.Equal(t, Backoff{10, 50}, Backoff{Max: 50}.withDefaults(10, 100))
}
