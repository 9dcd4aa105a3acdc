package consumer

import (
	"sync"
	"sync/atomic"
	"time"
)

// standstill holds the workers of a runner back while dead letters cannot be
// published. Unlike at the gate, whoever has met the trouble tries again itself:
// the messages of others need no dead letters, and would tell nothing. So it
// lasts exactly as long as somebody tries.
type standstill struct {
	holds atomic.Bool // whether anybody tries, readable without the lock

	mu     sync.Mutex
	trying int
	reason error         // what the last of them has met
	since  time.Time     // when it began, or ended
	ended  chan struct{} // closed when nobody tries any more
}

// pass waits until nobody tries. It returns false once stop is closed.
func (s *standstill) pass(stop <-chan struct{}) bool {
	for s.holds.Load() {
		s.mu.Lock()
		ended := s.ended
		s.mu.Unlock()
		select {
		case <-ended:
		case <-stop:
			return false
		}
	}
	return true
}

// state returns why the runner stands still, nil when it does not, and since
// when it does, or does not.
func (s *standstill) state() (since time.Time, reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.since, s.reason
}

// begin notes one more that tries, and tells whether it is the first.
func (s *standstill) begin() (news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.trying++; s.trying > 1 {
		return false
	}
	s.since, s.ended = time.Now(), make(chan struct{})
	s.holds.Store(true)
	return true
}

func (s *standstill) because(reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reason = reason
}

// end notes one less, and tells whether it was the last, and how long it took.
func (s *standstill) end() (lasted time.Duration, news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.trying--; s.trying > 0 {
		return 0, false
	}
	lasted = time.Since(s.since)
	s.since, s.reason = time.Now(), nil
	s.holds.Store(false)
	close(s.ended)
	return lasted, true
}

// tries is one worker's turn at the dead letters, from its first failure to its
// success, or until it gives up. It is used by one goroutine.
type tries[Tx any] struct {
	runner *Runner[Tx]
	failed int
}

// wait stands still because of err, and waits for the next try. It returns false
// once stop is closed.
func (t *tries[Tx]) wait(err error, stop <-chan struct{}) bool {
	r := t.runner
	if t.failed++; t.failed == 1 && r.standstill.begin() {
		r.log.paused(err)
	}
	r.standstill.because(err)
	timer := time.NewTimer(r.cfg.Probe.wait(t.failed))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-stop:
		return false
	}
}

// over must be called when there is nothing to try any more.
func (t *tries[Tx]) over(succeeded bool) {
	if t.failed == 0 {
		return
	}
	t.failed = 0
	if lasted, news := t.runner.standstill.end(); news && succeeded {
		t.runner.log.resumed(lasted)
	}
}
