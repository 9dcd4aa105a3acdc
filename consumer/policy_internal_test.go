package consumer

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestSetAsideJitterBounds(t *testing.T) {
	t.Parallel()
	least, most := time.Hour, time.Duration(0)
	for range 10_000 {
		d := jittered(time.Hour)
		least, most = min(least, d), max(most, d)
	}
	require.GreaterOrEqual(t, least, 54*time.Minute, "not more than a tenth less")
	require.LessOrEqual(t, most, time.Hour, "never more")
	require.Less(t, least, 55*time.Minute, "it is spread")
	require.Greater(t, most, 59*time.Minute, "it is spread")
	require.Zero(t, jittered(0))
	require.GreaterOrEqual(t, jittered(1), time.Duration(0), "negative is for good")
}

func TestSetAsideErrorText(t *testing.T) {
	t.Parallel()
	require.Equal(t, "no", errorText(errors.New("no")))
	whole := strings.Repeat("x", maxErrorBytes)
	require.Equal(t, whole, errorText(errors.New(whole)))
	require.Equal(t, whole+"… (4097 bytes)", errorText(errors.New(whole+"y")))
	for shift := range 4 { // a cut at each byte of a character
		text := errorText(errors.New(strings.Repeat("x", shift) + strings.Repeat("😀", maxErrorBytes)))
		require.True(t, utf8.ValidString(text), "shifted by %d", shift)
		require.Less(t, len(text), maxErrorBytes+40)
		require.Greater(t, len(text), maxErrorBytes)
	}
	garbage := strings.Repeat("\x80", 2*maxErrorBytes) // the inbox makes it fit
	require.Equal(t, garbage[:maxErrorBytes-utf8.UTFMax]+"… (8192 bytes)", errorText(errors.New(garbage)))
	require.Contains(t, errorText(panicsInError{}), "PANIC", "somebody else's mistake ends no process")
	require.Equal(t, "<nil>", errorText((*pointerError)(nil)), "nor does the well-known one")
}

type panicsInError struct{}

func (panicsInError) Error() string { panic("no") }

type pointerError struct{ text string }

func (e *pointerError) Error() string { return e.text }

func TestMismatchIDs(t *testing.T) {
	t.Parallel()
	hash := func(s string) []byte { return new(digest).of([]byte(s)) }
	suffix := 1 + 32
	short := mismatched(&Message{ID: "a", Hash: hash("x")})
	require.Regexp(t, "^a#[0-9a-f]{32}$", short)
	require.Equal(t, short, mismatched(&Message{ID: "a", Hash: hash("x")}), "its redelivery is a duplicate")
	require.NotEqual(t, short, mismatched(&Message{ID: "a", Hash: hash("y")}), "a third body is another message")

	longest := strings.Repeat("x", MaxIDBytes-suffix)
	require.Equal(t, longest, mismatched(&Message{ID: longest, Hash: hash("x")})[:len(longest)])
	for _, id := range []string{longest + "x", strings.Repeat("é", MaxIDBytes/2)} {
		got := mismatched(&Message{ID: id, Hash: hash("x")})
		require.NoError(t, CheckID(got))
		require.Regexp(t, "^[0-9a-f]{64}#[0-9a-f]{32}$", got)
		require.NotEqual(t, got, mismatched(&Message{ID: id[:len(id)-2] + "yy", Hash: hash("x")}))
	}
}

func TestUnidentifiedIDs(t *testing.T) {
	t.Parallel()
	require.Equal(t, "unidentified:orders/3@17", unidentified(&Message{Position: "orders/3@17"}))
	for _, position := range []string{"", "queue orders #17", "orders@x", strings.Repeat("x", MaxIDBytes) + "@1", "\xff@1"} {
		m := &Message{Position: position}
		first, second := unidentified(m), unidentified(m)
		require.Regexp(t, "^unidentified:[A-Z2-7]{26,}$", first)
		require.NotEqual(t, first, second, "two deliveries may have one number")
		require.NoError(t, CheckID(first))
	}
}

func TestSetAsidePolicy(t *testing.T) {
	t.Parallel()
	p := retryPolicy{inPlace: 3, backoff: Backoff{Min: time.Second, Max: time.Minute}, later: []time.Duration{time.Hour, 2 * time.Hour}}
	fails := result{fate: failed, err: errors.New("no")}
	asks := func(d time.Duration) result { return result{fate: failed, err: RetryAfter(d, errors.New("no"))} }
	final := result{fate: failed, err: Permanent(errors.New("no")), final: true}
	for name, c := range map[string]struct {
		attempt  int
		res      result
		holds    bool
		reason   Reason
		min, max time.Duration // forGood for good
	}{
		"first":                      {attempt: 1, res: fails, holds: true},
		"last but one in place":      {attempt: 2, res: fails, holds: true},
		"last in place":              {attempt: 3, res: fails, reason: ReasonFailed, min: 54 * time.Minute, max: time.Hour},
		"first later":                {attempt: 4, res: fails, reason: ReasonFailed, min: 108 * time.Minute, max: 2 * time.Hour},
		"last":                       {attempt: 5, res: fails, reason: ReasonFailed, min: forGood, max: forGood},
		"after the last, by hand":    {attempt: 9, res: fails, reason: ReasonFailed, min: forGood, max: forGood},
		"permanent":                  {attempt: 1, res: final, reason: ReasonPermanent, min: forGood, max: forGood},
		"permanent later":            {attempt: 4, res: final, reason: ReasonPermanent, min: forGood, max: forGood},
		"asks for Max":               {attempt: 1, res: asks(time.Minute), holds: true},
		"asks for more":              {attempt: 1, res: asks(time.Minute + 1), reason: ReasonFailed, min: time.Minute + 1, max: time.Minute + 1},
		"asks for nothing, later":    {attempt: 4, res: asks(0), reason: ReasonFailed},
		"asks when there is no more": {attempt: 5, res: asks(time.Hour), reason: ReasonFailed, min: forGood, max: forGood},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.holds, p.holds(c.attempt, c.res))
			if c.holds {
				return
			}
			m := &Message{ID: "a"}
			f := p.aside(m, c.attempt, c.res)
			require.Same(t, m, f.Message)
			require.Equal(t, c.reason, f.Reason)
			require.Equal(t, c.attempt, f.Attempts)
			require.Equal(t, c.res.err.Error(), f.Error)
			require.GreaterOrEqual(t, f.RetryIn, c.min)
			require.LessOrEqual(t, f.RetryIn, c.max)
			require.Equal(t, c.min == forGood, f.ForGood())
		})
	}
}
