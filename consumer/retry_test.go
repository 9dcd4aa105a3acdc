package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
)

// attempt is what a handler notes down of itself.
type attempt struct {
	n  int
	at time.Time
}

// failing makes the handler note its attempts, and fail all before the nth
// with what err returns.
func (f *fixture) failing(n int, err func() error) *list[attempt] {
	var made list[attempt]
	f.cfg.Handler = handler(func(ctx context.Context, tx *Tx, m *message) error {
		made.add(attempt{m.Attempt, time.Now()})
		if e := effect(ctx, tx, m); e != nil {
			return e
		}
		if m.Attempt < n {
			return err()
		}
		return nil
	})
	return &made
}

func requireCounted(t *testing.T, made []attempt, n int) {
	t.Helper()
	require.Len(t, made, n)
	for i, a := range made {
		require.Equal(t, i+1, a.n)
	}
}

func timesOf(made []attempt) []time.Time {
	all := make([]time.Time, len(made))
	for i, a := range made {
		all[i] = a.at
	}
	return all
}

func TestFailureIsRetriedWithBackoff(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.cfg.Retry = consumer.Backoff{Min: time.Second, Max: 10 * time.Second}
		made := f.failing(12, func() error { return io.EOF })
		f.broker.Publish(msg("a"))
		f.start()
		f.finish()
		requireCounted(t, made.all(), 12)
		requireBackoff(t, timesOf(made.all()), f.cfg.Retry)
		require.Equal(t, []string{"a"}, f.inbox.committed(), "failed attempts leave nothing")
		lines := f.log.with("attempt failed")
		require.Len(t, lines, 11)
		require.Equal(t, "EOF", lines[0]["error"])
	})
}

func TestRetryDefaultsToUpTo30Seconds(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		made := f.failing(20, func() error { return io.EOF })
		f.broker.Publish(msg("a"))
		f.start()
		f.finish()
		requireBackoff(t, timesOf(made.all()), consumer.Backoff{Min: 100 * time.Millisecond, Max: 30 * time.Second})
	})
}

func TestRetryAfterIsHonoured(t *testing.T) {
	for _, c := range []struct{ asked, waited time.Duration }{
		{time.Nanosecond, time.Nanosecond}, {7 * time.Minute, 7 * time.Minute}, {0, 0}, {-time.Second, 0},
	} {
		t.Run(c.asked.String(), func(t *testing.T) {
			onBoth(t, func(t *testing.T, f *fixture) {
				made := f.failing(4, func() error {
					return fmt.Errorf("wrapped: %w", consumer.RetryAfter(c.asked, io.EOF))
				})
				f.broker.Publish(msg("a"))
				f.start()
				f.finish()
				requireCounted(t, made.all(), 4)
				times := timesOf(made.all())
				for i := range times[1:] {
					require.Equal(t, c.waited, times[i+1].Sub(times[i]))
					require.EqualValues(t, c.waited, f.log.with("attempt failed")[i]["ackafter.retry_in"])
				}
			})
		})
	}
}

func TestPanicIsAFailedAttempt(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		made := f.failing(3, func() error { panicsHere(); return nil })
		f.broker.Publish(msg("a"))
		f.start()
		f.finish()
		requireCounted(t, made.all(), 3)
		require.Equal(t, []string{"a"}, f.inbox.committed())
		line := f.log.with("attempt failed")[0]
		require.Equal(t, "panic: on purpose", line["error"])
		require.Contains(t, line["exception.stacktrace"], "panicsHere")
	})
}

func panicsHere() { panic(errors.New("on purpose")) }

func TestHandlerTimeoutIsAFailedAttempt(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.cfg.HandlerTimeout = time.Second
		var made list[int]
		var causes list[error]
		f.cfg.Handler = handler(func(ctx context.Context, tx *Tx, m *message) error {
			made.add(m.Attempt)
			if m.Attempt == 1 {
				<-ctx.Done()
				causes.add(context.Cause(ctx))
			}
			return tx.Do(fmt.Sprint("attempt ", m.Attempt)) // whatever it says, it was too late
		})
		f.broker.Publish(msg("a"))
		f.start()
		advance(time.Second)
		require.Len(t, f.log.with("attempt failed"), 1)
		require.Contains(t, f.log.with("attempt failed")[0]["error"], "Config.HandlerTimeout")
		f.finish()
		require.Equal(t, []int{1, 2}, made.all())
		require.Equal(t, []string{"attempt 2"}, f.inbox.committed())
		require.ErrorIs(t, causes.all()[0], consumer.ErrHandlerTimeout)
		require.ErrorIs(t, consumer.ErrHandlerTimeout, context.DeadlineExceeded)
	})
}

// What a handler says once its time is over does not steer: it may follow from
// the end of its context.
func TestHandlerTimeoutIsNeverPermanent(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.cfg.HandlerTimeout = time.Second
		f.cfg.Handler = handler(func(ctx context.Context, tx *Tx, m *message) error {
			if m.Attempt == 1 {
				<-ctx.Done()
				return consumer.Permanent(ctx.Err())
			}
			return tx.Do("a")
		})
		f.broker.Publish(msg("a"))
		f.start()
		f.finish()
		require.Equal(t, []string{"a"}, f.inbox.committed())
	})
}

// contended makes the first n commits lose to a rival.
func (f *fixture) contended(n int) {
	lost := 0
	f.inbox.failWith(func(s stage, _ *message) error {
		if s != atCommit || lost == n {
			return nil
		}
		lost++
		return fmt.Errorf("deadlock: %w", consumer.ErrContention)
	})
}

func TestContentionIsNoAttempt(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		made := f.failing(1, nil)
		f.contended(20)
		f.broker.Publish(msg("a"))
		f.start()
		f.finish()
		require.Len(t, made.all(), 21)
		for i, a := range made.all() {
			require.Equal(t, 1, a.n)
			if i > 0 {
				require.LessOrEqual(t, a.at.Sub(made.all()[i-1].at), 250*time.Millisecond)
			}
		}
		require.Equal(t, []string{"INFO consumer started", "INFO consumer stopped"}, f.log.loud())
	})
}

func TestContentionBeyondTheLimitIsAnAttempt(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		made := f.failing(1, nil)
		f.contended(2*21 + 5)
		f.cfg.Retry = consumer.Backoff{Min: time.Hour, Max: time.Hour}
		f.broker.Publish(msg("a"))
		f.start()
		f.finish()
		all := made.all()
		require.Len(t, all, 48)
		require.Equal(t, 1, all[20].n)
		require.Equal(t, 2, all[21].n)
		require.GreaterOrEqual(t, all[21].at.Sub(all[20].at), time.Hour/10, "with the wait of a failure")
		require.Equal(t, 2, all[41].n)
		require.Equal(t, 3, all[42].n)
		require.Len(t, f.log.with("attempt failed"), 2)
	})
}

// Only what is lost in a row counts.
func TestContentionIsForgottenAfterAnotherOutcome(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		commits := 0
		f.inbox.failWith(func(s stage, _ *message) error {
			if s != atCommit {
				return nil
			}
			commits++
			switch {
			case commits == 21:
				return errAway
			case commits <= 41:
				return consumer.ErrContention
			}
			return nil
		})
		made := f.failing(1, nil)
		f.broker.Publish(msg("a"))
		f.start()
		f.finish()
		require.Len(t, made.all(), 42)
		require.Empty(t, f.log.with("attempt failed"))
	})
}
