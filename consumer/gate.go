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
	// failures counts the attempts in a row that found the database away. That
	// it answered a claim ends a pause, but not yet the row.
	failures atomic.Int32
	// closings counts how often it was shut.
	closings atomic.Int64

	mu      sync.Mutex
	reason  error         // why the gate is shut; nil while it is open
	since   time.Time     // when it was last shut or opened
	passes  pass          // how many were given to probes
	probe   pass          // that of the probe under way; zero while there is none
	changed chan struct{} // closed when the gate opens or the probe gives up
}

// pass is the leave to try an attempt: zero through the open gate, and a number
// of its own for each probe. Only the probe can open the gate: any other
// attempt may have reached the database before it went away.
type pass uint64

// enter waits until the caller may try an attempt, as the probe or because the
// gate is open; the caller must then call open, close or leave. ok is false
// once stop is closed.
func (g *gate) enter(stop <-chan struct{}) (p pass, ok bool) {
	for g.shut.Load() {
		g.mu.Lock()
		if g.reason == nil {
			g.mu.Unlock()
			break
		}
		if g.probe == 0 {
			g.passes++
			g.probe, p = g.passes, g.passes
			wait := g.backoff.wait(int(g.failures.Load()))
			g.mu.Unlock()
			return p, g.sleep(p, wait, stop)
		}
		changed := g.changed
		g.mu.Unlock()
		select {
		case <-changed:
		case <-stop:
			return 0, false
		}
	}
	return 0, true
}

// sleep is what the probe does before its attempt.
func (g *gate) sleep(p pass, wait time.Duration, stop <-chan struct{}) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-stop:
		g.leave(p)
		return false
	}
}

// close notes that the database is away, and tells whether that is news.
func (g *gate) close(reason error, p pass) (news bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	news = g.reason == nil
	if news {
		g.since = time.Now()
		g.failures.Add(1)
		g.changed = make(chan struct{})
		g.closings.Add(1)
		g.shut.Store(true)
	}
	g.reason = reason
	if !news && p != 0 && p == g.probe {
		g.failures.Add(1)
		g.release()
	}
	return news
}

// open notes that the database has answered an attempt, and tells whether that
// is news and how long it was away.
func (g *gate) open(p pass) (away time.Duration, news bool) {
	if p == 0 {
		return 0, false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if p != g.probe {
		return 0, false
	}
	away = time.Since(g.since)
	g.reason, g.since = nil, time.Now()
	g.shut.Store(false)
	g.probe = 0
	close(g.changed)
	return away, true
}

// recovered notes an attempt that went through, whatever its result.
func (g *gate) recovered() {
	if g.failures.Load() != 0 && !g.shut.Load() {
		g.failures.Store(0)
	}
}

// leave gives up an attempt that told nothing about the database.
func (g *gate) leave(p pass) {
	if p == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if p == g.probe {
		g.release()
	}
}

// release lets another worker become the probe. The caller holds g.mu.
func (g *gate) release() {
	g.probe = 0
	close(g.changed)
	g.changed = make(chan struct{})
}

// state returns why the gate is shut, nil while it is open, and since when it
// is either.
func (g *gate) state() (since time.Time, reason error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.since, g.reason
}
