package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// CrashInbox is what an Inbox implements that can count attempts which ended
// their process. With an inbox that cannot, a message whose handler kills the
// process is delivered for as long as the broker does that.
//
// Only messages that the broker has delivered before (Message.Redelivered) are
// counted. The others cost nothing.
type CrashInbox interface {
	// BeginAttempt notes that a handler is about to run. It returns how many
	// other runners have noted that and never called EndAttempt. runner names
	// the caller's, and is the same in all its calls.
	BeginAttempt(ctx context.Context, subscriber, id, runner string) (crashes int, err error)
	// EndAttempt forgets all that was noted of the message.
	EndAttempt(ctx context.Context, subscriber, id string) error
}

// crashWatch keeps the attempts that may end the process apart from the others.
type crashWatch struct {
	inbox  CrashInbox // nil when the inbox is none
	runner string
	limit  int // how many attempts may have ended their process

	// alone is held for writing while a message is handled that was in a
	// handler when a process ended, so that another crash shows whose it is.
	alone sync.RWMutex
}

func newCrashWatch(inbox any, runner string, attempts int) *crashWatch {
	w := &crashWatch{runner: runner, limit: max(1, attempts-1)}
	w.inbox, _ = inbox.(CrashInbox)
	return w
}

// suspects tells whether an attempt at m has to be noted.
func (w *crashWatch) suspects(m *Message) bool { return w.inbox != nil && m.Redelivered }

var errCrash = errors.New("the attempts at this message ended their process, or were cut short with it")

func crashed(times int) error {
	return fmt.Errorf("%w, %d times in a row: look for the cause (memory? os.Exit?), and then retry it or let it go", errCrash, times)
}

// try is attempt, for a message that may have ended a process before as for one
// that has not.
func (s *streamRun[Tx]) try(ctx context.Context, session Session[Tx], p pass, t *task, next func() []*Message) result {
	r, w := s.runner, s.runner.crashes
	if w.suspects(t.m) && !t.noted {
		crashes, err := w.inbox.BeginAttempt(ctx, r.cfg.Subscriber, t.m.ID, w.runner)
		switch {
		case err != nil && ctx.Err() != nil:
			return result{fate: cut, err: err}
		case err != nil: // whatever it is: unnoted, the message is not handled
			return result{fate: away, err: err}
		}
		t.crashes, t.noted = crashes, true
		s.noted.add(t)
	}
	if t.crashes >= w.limit {
		return result{fate: rejected, reason: ReasonCrash, err: crashed(t.crashes + 1)}
	}
	if t.crashes > 0 {
		w.alone.Lock()
		defer w.alone.Unlock()
	} else {
		w.alone.RLock()
		defer w.alone.RUnlock()
	}
	return r.attempt(ctx, session, p, t.ms[:], next)
}

// notedTasks are those whose attempts are noted.
type notedTasks struct {
	mu  sync.Mutex
	all map[*task]struct{}
}

func (n *notedTasks) add(t *task) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.all == nil {
		n.all = map[*task]struct{}{}
	}
	n.all[t] = struct{}{}
}

func (n *notedTasks) remove(t *task) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.all, t)
}

// take returns all, and forgets them.
func (n *notedTasks) take() map[*task]struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.all
	n.all = nil
	return all
}

// survived notes that the process has outlived all attempts at t.
func (s *streamRun[Tx]) survived(ctx context.Context, t *task) {
	if !t.noted {
		return
	}
	t.noted = false
	s.noted.remove(t)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.runner.cfg.AckTimeout)
	defer cancel()
	if err := s.runner.crashes.inbox.EndAttempt(ctx, s.runner.cfg.Subscriber, t.m.ID); err != nil {
		s.log.message(ctx, t.m, "that an attempt came to its end could not be noted", err)
	}
}

// survivedAll does that for what the end of the stream leaves behind.
func (s *streamRun[Tx]) survivedAll(ctx context.Context) {
	for t := range s.noted.take() {
		s.survived(ctx, t)
	}
}
