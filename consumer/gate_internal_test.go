package consumer

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func newGate() *gate { return &gate{backoff: Backoff{Min: time.Minute, Max: time.Minute}} }

// enterLater enters the gate in a goroutine of its own.
func enterLater(g *gate, stop chan struct{}) chan pass {
	entered := make(chan pass, 1)
	go func() {
		if p, ok := g.enter(stop); ok {
			entered <- p
		}
	}()
	synctest.Wait()
	return entered
}

func TestGateOpen(t *testing.T) {
	t.Parallel()
	g := newGate()
	p, ok := g.enter(nil)
	require.True(t, ok)
	require.Zero(t, p)
	_, news := g.open(p)
	require.False(t, news)
	g.leave(p)
}

func TestGateLetsOneProbeThrough(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		require.True(t, g.close(io.EOF, 0))
		require.False(t, g.close(io.EOF, 0), "no news")
		first, second := enterLater(g, nil), enterLater(g, nil)
		p := <-first
		require.NotZero(t, p)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Empty(t, second, "the first probe has told nothing yet")

		require.False(t, g.close(io.ErrUnexpectedEOF, p))
		_, reason := g.state()
		require.Equal(t, io.ErrUnexpectedEOF, reason)
		p = <-second
		require.NotZero(t, p)
		began := time.Now()
		third := enterLater(g, nil)
		away, news := g.open(p)
		require.True(t, news)
		require.Greater(t, away, time.Hour)
		require.Zero(t, <-third)
		require.Equal(t, began, time.Now(), "an open gate costs no wait")
	})
}

func TestGateIsOpenedByTheProbeOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		g.close(io.EOF, 0)
		_, news := g.open(0)
		require.False(t, news, "its attempt was older")
		p := <-enterLater(g, nil)
		_, news = g.open(p)
		require.True(t, news)

		g.close(io.EOF, 0) // and away again
		_, news = g.open(p)
		require.False(t, news, "the probe of an earlier pause")
		entered := enterLater(g, nil)
		g.leave(p)
		require.False(t, g.close(io.EOF, p))
		stop := make(chan struct{})
		second := enterLater(g, stop)
		require.NotZero(t, <-entered)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Empty(t, second, "the old probe must not end the new one")
		close(stop)
	})
}

func TestGateProbeMayLeave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		g.close(io.EOF, 0)
		p := <-enterLater(g, nil)
		second := enterLater(g, nil)
		g.leave(p)
		require.NotZero(t, <-second)
	})
}

func TestGateStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		g.close(io.EOF, 0)
		stop, others := make(chan struct{}), make(chan struct{})
		probe, waiter := enterLater(g, stop), enterLater(g, stop)
		other := enterLater(g, others)
		close(stop)
		synctest.Wait()
		require.Empty(t, probe)
		require.Empty(t, waiter)
		require.NotZero(t, <-other, "another stream's worker takes over")
	})
}
