package consumer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
	"unicode/utf8"
)

// retryPolicy says what follows a failed attempt.
type retryPolicy struct {
	inPlace  int             // attempts before a message is set aside
	backoff  Backoff         // between them
	later    []time.Duration // until each of those that follow
	classify func(error) error
}

// defaultRetryLater is what Config.RetryLater says.
var defaultRetryLater = []time.Duration{time.Minute, 10 * time.Minute, time.Hour, 6 * time.Hour}

func newRetryPolicy[Tx any](cfg Config[Tx]) retryPolicy {
	p := retryPolicy{cfg.Attempts, cfg.Retry, slices.Clone(cfg.RetryLater), cfg.Classify}
	if p.classify == nil {
		p.classify = func(err error) error { return err }
	}
	return p
}

// wait is how long to wait in place after the given attempt failed with err.
func (p retryPolicy) wait(attempt int, err error) time.Duration {
	if d, asked := askedToWait(err); asked {
		return d
	}
	return p.backoff.wait(attempt)
}

// holds tells whether the given attempt, which failed, is followed by another
// one in place.
func (p retryPolicy) holds(attempt int, res result) bool {
	d, asked := askedToWait(res.err)
	return !res.final && attempt < p.inPlace && !(asked && d > p.backoff.Max)
}

// aside is m as it is set aside after the given attempt.
func (p retryPolicy) aside(m *Message, attempt int, res result) Failure {
	f := Failure{Message: m, Reason: ReasonFailed, Error: errorText(res.err), Attempts: attempt, RetryIn: forGood}
	if res.final {
		f.Reason = ReasonPermanent
		return f
	}
	if n := max(attempt-p.inPlace, 0); n < len(p.later) {
		f.RetryIn = jittered(p.later[n])
		if d, asked := askedToWait(res.err); asked {
			f.RetryIn = d
		}
	}
	return f
}

func askedToWait(err error) (time.Duration, bool) {
	var after *retryAfterError
	if !errors.As(err, &after) {
		return 0, false
	}
	return after.after, true
}

// jittered spreads what fails together, by a tenth.
func jittered(d time.Duration) time.Duration {
	return d - time.Duration(rand.Float64()*float64(d)/10)
}

// maxErrorBytes is how much of an error is kept.
const maxErrorBytes = 4096

// errorText is err's text, at most a little more than maxErrorBytes of it.
func errorText(err error) string {
	return shortened(fmt.Sprint(err), maxErrorBytes) // which survives an Error method that panics
}

// shortened returns text, or the first limit bytes of it with a note.
func shortened(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	end := limit
	for end > limit-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return fmt.Sprintf("%s… (%d bytes)", text[:end], len(text))
}
