package consumer

import "sync/atomic"

// semaphore limits how many may do something at once, and serves those who
// wait in their order.
type semaphore struct {
	slots   chan struct{} // nil sets no limit
	waiting atomic.Int32
}

// newSemaphore returns a semaphore; a limit of zero is none.
func newSemaphore(limit int) *semaphore {
	if limit == 0 {
		return &semaphore{}
	}
	return &semaphore{slots: make(chan struct{}, limit)}
}

// acquire returns false once stop is closed.
func (s *semaphore) acquire(stop <-chan struct{}) bool {
	if s.slots == nil {
		return true
	}
	s.waiting.Add(1)
	defer s.waiting.Add(-1)
	select {
	case s.slots <- struct{}{}:
		return true
	case <-stop:
		return false
	}
}

func (s *semaphore) release() {
	if s.slots != nil {
		<-s.slots
	}
}

// crowded tells whether anybody waits.
func (s *semaphore) crowded() bool { return s.waiting.Load() > 0 }
