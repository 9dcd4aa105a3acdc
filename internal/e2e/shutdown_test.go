//go:build unix

package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ackafter/ackafter/consumer"
)

func TestTerminatedProcessFinishesWhatIsInFlight(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	all := ids("m", 10)
	w.q.send(all...)
	c := w.startChild(childSpec{HoldHandler: true, Workers: 3})
	c.expect("begun m0", "begun m1", "begun m2")
	w.requireNoTrace()
	began := time.Now()
	c.terminate()
	c.expect("stopping")
	c.command("release")
	require.Zero(t, c.exitCode(), "exit code")
	require.Less(t, time.Since(began), 20*time.Second, "the default of DrainTimeout")
	w.requireEffects(all[:3]...)
	w.q.requireReady(7)

	k := w.start(w.parts())
	w.requireSettled(all...)
	k.stop()
	w.q.requireReady(0)
	require.Zero(t, w.log.count(lineDuplicate), "what was committed was acknowledged, too")
}

// Not parallel: nothing else may start or end a goroutine.
func TestNoGoroutineIsLeftWhenRunReturns(t *testing.T) {
	w := newWorld(t)
	all := ids("m", 10)
	w.q.send(all...)
	w.requireNoTrace() // opens the test's own connection
	before := goleak.IgnoreCurrent()

	begun, finish := make(chan struct{}, 3), make(chan struct{})
	effect := w.effect()
	p := w.parts()
	p.Workers = 3
	p.Handler = consumer.HandlerFunc[pgx.Tx](func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
		begun <- struct{}{}
		w.hold(finish)
		return effect(ctx, tx, m)
	})
	k := w.start(p)
	for range 3 {
		await(t, "a handler begins", begun)
	}
	k.cancel()
	eventually(t, "draining", func() bool { return k.Health().State == consumer.Draining })
	close(finish)
	require.NoError(t, k.wait())
	k.pool.Close()
	goleak.VerifyNone(t, before)
	require.Equal(t, consumer.Stopped, k.Health().State)
	w.requireEffects(all[:3]...)
	w.q.requireReady(7)
}

func TestHandlerPastDrainTimeoutIsDeliveredAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.q.send("a")
	begun := make(chan struct{})
	cause := make(chan error, 1)
	effect := w.effect()
	p := w.parts()
	p.DrainTimeout = 50 * time.Millisecond
	p.Handler = consumer.HandlerFunc[pgx.Tx](func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
		err := effect(ctx, tx, m)
		close(begun)
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return err // nil, and yet nothing may be committed
	})
	k := w.start(p)
	await(t, "the handler begins", begun)
	k.stop()
	require.ErrorIs(t, <-cause, consumer.ErrDrainTimeout)
	w.requireNoTrace()
	w.q.requireReady(1)

	k = w.start(w.parts())
	w.requireSettled("a")
	k.stop()
	w.requireNoAttemptCounted()
}

func TestShutdownOfSlowHandlersSetsNothingAside(t *testing.T) {
	t.Parallel()
	const n = 50
	s := privatePostgreSQL(t) // the shared one has no 50 connections left
	w := newWorldOn(t, s.URL(), amqpURL(t))
	all := ids("m", n)
	w.q.send(all...)
	begun := make(chan struct{}, n)
	effect := w.effect()
	p := w.asideParts()
	p.Workers, p.Attempts, p.DrainTimeout = n, 1, 10*time.Millisecond
	p.RetryLater = []time.Duration{0}
	p.Pool = func(c *pgxpool.Config) { c.MaxConns = n + 1 }
	p.Handler = consumer.HandlerFunc[pgx.Tx](func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
		if err := effect(ctx, tx, m); err != nil {
			return err
		}
		begun <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	})
	k := w.start(p)
	for range n {
		await(t, "all handlers are at work", begun)
	}
	k.stop()
	w.requireNoTrace()
	require.Zero(t, w.setAside())
	require.Zero(t, w.log.count(lineAside))
	w.q.requireReady(n)

	p.Handler = effect
	k = w.start(p)
	w.requireSettled(all...)
	k.stop()
	w.requireNoAttemptCounted()
	require.Zero(t, w.setAside())
	w.q.requireReady(0)
}
