package consumer

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Backoff says how long to wait before trying again: a random time between a
// tenth of a limit and the limit, which starts at Min, doubles with each failure
// and ends at Max. Chance keeps many workers from coming back in step.
type Backoff struct {
	// Min is the limit of the first wait. Zero means the default of the field
	// that holds this Backoff, and at most Max.
	Min time.Duration
	// Max is the limit that no wait exceeds. Zero means the default of the
	// field that holds this Backoff, and at least Min.
	Max time.Duration
}

func (b Backoff) withDefaults(minimum, maximum time.Duration) Backoff {
	if b.Max > 0 {
		minimum = min(minimum, b.Max)
	}
	setDefault(&b.Min, minimum)
	setDefault(&b.Max, max(maximum, b.Min))
	return b
}

func (b Backoff) validate() error {
	if b.Min < 0 || b.Max < b.Min {
		return fmt.Errorf("must have 0 <= Min <= Max, has Min %v and Max %v", b.Min, b.Max)
	}
	return nil
}

// limit returns the longest wait after so many failures in a row.
func (b Backoff) limit(failures int) time.Duration {
	d := b.Min
	for range failures - 1 {
		if d >= b.Max/2 {
			return b.Max
		}
		d *= 2
	}
	return d
}

// wait returns how long to wait after so many failures in a row. It is at
// least a tenth of the limit, since a wait of almost nothing would spend the
// next attempt on the same instant's trouble.
func (b Backoff) wait(failures int) time.Duration {
	limit := b.limit(failures)
	return limit/10 + rand.N(limit-limit/10+1)
}
