package consumer

import (
	"sync"
	"sync/atomic"
	"time"
)

// gate holds the workers of a runner back while the database is away. One of
// them at a time is let through after a wait, as a probe: its attempt tells
// whether the database is back. So nothing but the real work is tried, and
// an outage costs one attempt per wait, however many workers there are.
type gate struct {
	backoff Backoff
	shut    atomic.Bool // whether reason is set, readable without the lock

	mu      sync.Mutex
	reason  error // why the gate is shut; nil while it is open
	since   time.Time
	probes  int           // how many probes have failed, and the first failure
	probing bool          // a worker is the probe
	changed chan struct{} // closed when the gate opens or the probe gives up
}

// enter waits until the caller may try an attempt, as the probe or because the
// gate is open; the caller must then call open, close or leave. ok is false
// once stop is closed.
func (g *gate) enter(stop <-chan struct{}) (probe, ok bool) {
	for g.shut.Load() {
		g.mu.Lock()
		if g.reason == nil {
			g.mu.Unlock()
			break
		}
		if !g.probing {
			g.probing = true
			wait := g.backoff.wait(g.probes)
			g.mu.Unlock()
			return true, g.sleep(wait, stop)
		}
		changed := g.changed
		g.mu.Unlock()
		select {
		case <-changed:
		case <-stop:
			return false, false
		}
	}
	return false, true
}

// sleep is what the probe does before its attempt.
func (g *gate) sleep(wait time.Duration, stop <-chan struct{}) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-stop:
		g.leave(true)
		return false
	}
}

// close notes that the database is away, and tells whether that is news.
func (g *gate) close(reason error, probe bool) (news bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	news = g.reason == nil
	if news {
		g.since, g.probes = time.Now(), 1
		g.changed = make(chan struct{})
		g.shut.Store(true)
	}
	g.reason = reason
	if probe && !news {
		g.probes++
		g.release()
	}
	return news
}

// open notes that the database has answered, and tells whether that is news
// and how long it was away.
func (g *gate) open() (away time.Duration, news bool) {
	if !g.shut.Load() {
		return 0, false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reason == nil {
		return 0, false
	}
	away = time.Since(g.since)
	g.reason = nil
	g.shut.Store(false)
	g.probing = false
	close(g.changed)
	return away, true
}

// leave gives up an attempt that told nothing about the database.
func (g *gate) leave(probe bool) {
	if !probe {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reason != nil {
		g.release()
	}
}

// release lets another worker become the probe. The caller holds g.mu.
func (g *gate) release() {
	g.probing = false
	close(g.changed)
	g.changed = make(chan struct{})
}

// state returns why and since when the gate is shut, or nil.
func (g *gate) state() (reason error, since time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.reason, g.since
}
