package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/brokers/memory"
	"github.com/ackafter/ackafter/consumer"
)

// checked is a Source and an Inbox with a check.
type checked struct {
	*memory.Broker
	*memInbox
	check func(ctx context.Context, p consumer.Plan) error
}

func (c checked) Check(ctx context.Context, p consumer.Plan) error { return c.check(ctx, p) }

func (f *fixture) checkInbox(check func() error) {
	f.cfg.Inbox = checked{f.broker, f.inbox, func(context.Context, consumer.Plan) error { return check() }}
}

func (f *fixture) checkSource(check func() error) {
	f.cfg.Source = checked{f.broker, nil, func(context.Context, consumer.Plan) error { return check() }}
}

const waiting = "waiting for what is away, to start"

func TestOutageAtTheStartIsWaitedFor(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFixture(t)
		var looks list[time.Time]
		inboxAway, sourceAway := errAway, errAway
		f.cfg.StartTimeout = time.Hour
		f.cfg.Probe = consumer.Backoff{Min: time.Second, Max: 4 * time.Second}
		f.checkInbox(func() error {
			looks.add(time.Now())
			if len(looks.all()) == 12 {
				inboxAway = nil
			}
			return inboxAway
		})
		sourceLooks := 0
		f.checkSource(func() error {
			if sourceLooks++; sourceLooks == 3 {
				sourceAway = nil
			}
			return sourceAway
		})
		f.broker.Publish(msg("a"))
		began := time.Now()
		f.start()
		h := f.runner.Health()
		require.Equal(t, consumer.Health{State: consumer.Starting, Since: began, Reason: errAway.Error(), Streams: h.Streams}, h)
		require.Empty(t, h.Streams)
		require.Empty(t, f.log.with("consumer started"))
		f.finish()
		requireBackoff(t, looks.all(), f.cfg.Probe)
		require.Equal(t, 3, sourceLooks)
		require.Len(t, f.log.with(waiting), 2, "one line for each, however often it looks")
		require.Equal(t, []string{"a"}, f.inbox.committed())
		require.Empty(t, f.runner.Health().Reason)
	})
}

func TestStartTimeout(t *testing.T) {
	for _, limit := range []time.Duration{0, 3 * time.Second} {
		t.Run(limit.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				f := newFixture(t)
				f.cfg.StartTimeout = limit
				f.checkSource(func() error { return errAway })
				began := time.Now()
				f.start()
				err := f.wait()
				require.ErrorIs(t, err, consumer.ErrOutage)
				require.ErrorContains(t, err, "Config.StartTimeout")
				require.ErrorContains(t, err, `subscriber "billing" cannot start`)
				if limit == 0 {
					limit = 30 * time.Second
				}
				require.Equal(t, limit, time.Since(began))
				require.Equal(t, consumer.Stopped, f.runner.Health().State)
			})
		})
	}
}

// A check that hangs is ended by the context that it gets.
func TestStartTimeoutReachesTheCheck(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFixture(t)
		f.cfg.Inbox = checked{f.broker, f.inbox, func(ctx context.Context, _ consumer.Plan) error {
			<-ctx.Done()
			return fmt.Errorf("%w: %w", consumer.ErrOutage, ctx.Err())
		}}
		began := time.Now()
		f.start()
		require.ErrorIs(t, f.wait(), consumer.ErrOutage)
		require.Equal(t, 30*time.Second, time.Since(began))
	})
}

func TestCheckErrorEndsRunAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, part := range []func(*fixture, func() error){(*fixture).checkInbox, (*fixture).checkSource} {
			f := newFixture(t)
			part(f, func() error { return io.EOF })
			f.broker.Publish(msg("a"))
			began := time.Now()
			f.start()
			require.ErrorIs(t, f.wait(), io.EOF)
			require.Equal(t, began, time.Now())
			require.Empty(t, f.inbox.committed())
		}
	})
}

func TestStopDuringTheStart(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFixture(t)
		f.checkInbox(func() error { return errAway })
		f.start()
		require.NoError(t, f.end())
		require.Equal(t, consumer.Stopped, f.runner.Health().State)
	})
}

func TestCheckMayWarn(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFixture(t)
		f.cfg.Inbox = checked{f.broker, f.inbox, func(_ context.Context, p consumer.Plan) error {
			p.Warn("the pool is small")
			return nil
		}}
		f.start()
		require.Equal(t, "WARN", f.log.with("the pool is small")[0]["level"])
		require.NoError(t, f.end())
	})
}

func TestRunTwice(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFixture(t)
		f.start()
		require.ErrorContains(t, f.runner.Run(t.Context()), "Run was called before")
		require.Equal(t, consumer.Running, f.runner.Health().State)
		require.NoError(t, f.end())
		require.ErrorContains(t, f.runner.Run(t.Context()), "Run was called before")
	})
}

func TestRunWithAContextThatHasEnded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFixture(t)
		f.broker.Publish(msg("a"))
		r, err := consumer.New(f.cfg)
		require.NoError(t, err)
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("too late"))
		require.NoError(t, r.Run(ctx))
		require.Empty(t, f.inbox.committed())
	})
}
