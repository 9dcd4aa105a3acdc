package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
)

var errAway = fmt.Errorf("connection refused: %w", consumer.ErrOutage)

const (
	paused  = "consumer paused: what it needs is away; nothing is lost, and no attempt is counted"
	resumed = "consumer resumed: what it needs is back"
)

func TestOutagePausesAndResumes(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.onStreams(2)
		f.cfg.Workers = 4
		var attempts list[int]
		f.cfg.Handler = handler(func(_ context.Context, tx *Tx, m *message) error {
			attempts.add(m.Attempt)
			return tx.Do(m.ID)
		})
		f.inbox.away(errAway)
		f.broker.Publish(msgs(100)...)
		began := time.Now()
		f.start()
		advance(time.Hour)
		h := f.runner.Health()
		require.Equal(t, consumer.Paused, h.State)
		require.False(t, h.OK())
		require.Equal(t, errAway.Error(), h.Reason)
		require.Equal(t, began, h.Since)
		require.Len(t, f.log.with(paused), 1, "one line, however long and however many workers")
		require.Equal(t, "WARN", f.log.with(paused)[0]["level"])
		require.Equal(t, []string{"INFO consumer started", "WARN " + paused}, f.log.loud())

		f.inbox.away(nil)
		advance(5 * time.Second) // no wait is longer
		require.Equal(t, consumer.Running, f.runner.Health().State)
		require.Len(t, f.log.with(resumed), 1)
		require.Equal(t, "INFO", f.log.with(resumed)[0]["level"])
		f.finish()
		require.ElementsMatch(t, ids(msgs(100)), f.inbox.committed())
		for _, n := range attempts.all() {
			require.Equal(t, 1, n, "an outage costs no attempt")
		}
	})
}

// A runner that works again says since when, in Health, too.
func TestHealthSinceAfterAnOutage(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.cfg.Probe = consumer.Backoff{Min: time.Second, Max: time.Second}
		f.broker.Publish(msg("a"))
		f.inbox.away(errAway)
		f.start()
		advance(time.Hour)
		f.inbox.away(nil)
		back := time.Now()
		advance(time.Minute)
		h := f.runner.Health()
		require.Equal(t, consumer.Running, h.State)
		require.WithinRange(t, h.Since, back, back.Add(time.Second))
	})
}

// awayAndTimed makes the database be away, and notes when a claim was tried.
func (f *fixture) awayAndTimed() *list[time.Time] {
	var times list[time.Time]
	f.inbox.failWith(func(s stage, _ *message) error {
		if s == atClaim {
			times.add(time.Now())
		}
		return errAway
	})
	return &times
}

func TestProbesFollowTheBackoff(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		times := f.awayAndTimed()
		f.cfg.Probe = consumer.Backoff{Min: time.Second, Max: 8 * time.Second}
		f.broker.Publish(msg("a"))
		f.start()
		advance(time.Hour)
		requireBackoff(t, times.all(), f.cfg.Probe)
	})
}

// requireBackoff checks the waits between times.
func requireBackoff(t *testing.T, times []time.Time, b consumer.Backoff) {
	t.Helper()
	require.Greater(t, len(times), 5)
	limit := b.Min
	for i := range times[1:] {
		wait := times[i+1].Sub(times[i])
		require.GreaterOrEqual(t, wait, limit/10, "wait %d", i)
		require.LessOrEqual(t, wait, limit, "wait %d", i)
		limit = min(2*limit, b.Max)
	}
}

// Once the first attempts have found the database away, one probe at a time
// looks, however many workers and streams there are.
func TestOneProbeAtATime(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		times := f.awayAndTimed()
		f.onStreams(20)
		f.cfg.Workers = 5
		f.cfg.Probe = consumer.Backoff{Min: time.Second, Max: time.Second}
		f.broker.Publish(msgs(200)...)
		f.start()
		first := len(times.all())
		require.LessOrEqual(t, first, 100)
		advance(5 * time.Minute)
		probes := times.all()[first:]
		require.Greater(t, len(probes), 250)
		for i, at := range probes[1:] {
			require.GreaterOrEqual(t, at.Sub(probes[i]), time.Second/10)
		}
	})
}

// Those that wait for their turn when the database goes away do not each find
// out by themselves.
func TestOutageOnFewTransactions(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.onStreams(50)
		f.cfg.MaxTransactions = 2
		f.cfg.Probe = consumer.Backoff{Min: time.Hour, Max: time.Hour}
		f.cfg.Handler = handler(func(_ context.Context, tx *Tx, m *message) error {
			time.Sleep(time.Second)
			return tx.Do(m.ID)
		})
		f.broker.Publish(msgs(100)...)
		f.start()
		times := f.awayAndTimed()
		advance(time.Minute)
		require.Equal(t, consumer.Paused, f.runner.Health().State)
		require.Empty(t, times.all(), "before the first probe")
		f.inbox.away(nil)
		f.finish()
	})
}

// A message that a session was to go on with waits for the database, too.
func TestOutageAtTheCommitStopsTheSession(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		var claims list[string]
		f.cfg.Probe = consumer.Backoff{Min: time.Hour, Max: time.Hour}
		f.inbox.failWith(func(s stage, m *message) error {
			if s == atClaim {
				claims.add(m.ID)
			}
			if s == atCommit {
				return errAway
			}
			return nil
		})
		f.broker.Publish(msgs(5)...)
		f.start()
		require.Equal(t, []string{"m0"}, claims.all())
		f.inbox.away(nil)
		f.finish()
		require.ElementsMatch(t, ids(msgs(5)), f.inbox.committed())
	})
}

// A claim from before the outage proves nothing: neither its handler's end nor
// its failure resumes the runner.
func TestHandlersInFlightDoNotEndAPause(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.cfg.Workers = 3
		f.cfg.Probe = consumer.Backoff{Min: time.Hour, Max: time.Hour}
		f.cfg.Handler = handler(func(ctx context.Context, tx *Tx, m *message) error {
			switch m.ID {
			case "m0":
				time.Sleep(time.Second)
				return tx.Do("m0")
			case "m1":
				time.Sleep(2 * time.Second)
				return errors.New("of its own")
			case "m2":
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		f.broker.Publish(msgs(3)...)
		f.start()
		f.inbox.away(errAway)
		advance(time.Minute) // less than the shortest wait of a probe
		require.Equal(t, consumer.Paused, f.runner.Health().State)
		require.Len(t, f.log.with(paused), 1)
		require.Empty(t, f.log.with(resumed))
	})
}

// The inbox knows better than the clock: a handler that hangs because the
// database is away has not failed.
func TestHandlerTimeoutInAnOutageIsNoAttempt(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		var attempts []int
		f.cfg.HandlerTimeout = time.Second
		f.cfg.Handler = handler(func(ctx context.Context, tx *Tx, m *message) error {
			attempts = append(attempts, m.Attempt)
			if len(attempts) > 1 {
				return tx.Do(m.ID)
			}
			<-ctx.Done()
			return tx.Do(m.ID) // says that the database is away
		})
		f.broker.Publish(msg("a"))
		f.start()
		f.inbox.away(errAway)
		advance(time.Minute)
		require.Equal(t, consumer.Paused, f.runner.Health().State)
		f.inbox.away(nil)
		f.finish()
		require.Equal(t, []int{1, 1}, attempts)
	})
}

// A connection that breaks at the commit counts no attempt, whatever follows.
func TestOutagesThatComeAndGo(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.cfg.Workers = 4
		f.cfg.Probe = consumer.Backoff{Min: time.Millisecond, Max: 8 * time.Millisecond}
		contacts := 0
		f.inbox.failWith(func(stage, *message) error {
			f.inbox.mu.Lock()
			defer f.inbox.mu.Unlock()
			if contacts++; contacts%7 == 0 {
				return errAway
			}
			return nil
		})
		f.cfg.Handler = handler(func(_ context.Context, tx *Tx, m *message) error {
			if m.Attempt != 1 {
				return errors.New("attempt counted")
			}
			time.Sleep(time.Millisecond)
			return tx.Do(m.ID)
		})
		f.broker.Publish(msgs(200)...)
		f.start()
		f.finish()
		require.ElementsMatch(t, ids(msgs(200)), f.inbox.committed())
		require.Len(t, f.log.with(resumed), len(f.log.with(paused)))
		require.Empty(t, f.log.with("attempt failed"))
	})
}

func TestStopDuringAnOutage(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.cfg.Workers = 2
		f.cfg.Probe = consumer.Backoff{Min: time.Hour, Max: time.Hour}
		f.inbox.away(errAway)
		f.broker.Publish(msgs(5)...)
		f.start()
		synctest.Wait()
		before := time.Now()
		require.NoError(t, f.end())
		require.Equal(t, before, time.Now(), "nothing had begun")
		require.Len(t, f.unacknowledged(), 5)
	})
}
