package consumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// CrashInbox is what an Inbox implements that can count attempts which ended
// their process. With an inbox that cannot, a message whose handler kills the
// process is delivered for as long as the broker does that.
//
// Only messages that the broker has delivered before (Message.Redelivered) are
// counted. The others cost nothing.
type CrashInbox interface {
	// BeginAttempts notes that the handlers of messages are about to run. It
	// returns, for each of ids, how many other runners have noted that and never
	// called EndAttempts. Where there is one, it notes nothing unless alone,
	// which says that no other handler of this runner is running. runner names
	// the caller's, and is the same in all its calls.
	BeginAttempts(ctx context.Context, subscriber string, ids []string, runner string, alone bool) (crashes []int, err error)
	// EndAttempts forgets all that was noted of messages.
	EndAttempts(ctx context.Context, subscriber string, ids []string) error
}

// crashWatch keeps the attempts that may end the process apart from the others.
type crashWatch struct {
	inbox  CrashInbox // nil when the inbox is none
	runner string
	limit  int // after how many crashes a message is set aside

	// alone is held for writing while a message is handled that was in a
	// handler when a process ended, so that another crash shows whose it is.
	alone sync.RWMutex

	mu   sync.Mutex
	owed map[string]struct{} // ids of attempts whose end could not be noted
}

// owe keeps ids for the next time that the database is there. They have not ended
// their process: else an outage would look like a crash to another runner.
func (w *crashWatch) owe(ids []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.owed == nil {
		w.owed = map[string]struct{}{}
	}
	for _, id := range ids {
		w.owed[id] = struct{}{}
	}
}

// end notes the end of attempts, and of those before that are owed.
func (w *crashWatch) end(ctx context.Context, subscriber string, ids []string) error {
	w.mu.Lock()
	ids = slices.AppendSeq(ids, maps.Keys(w.owed))
	w.owed = nil
	w.mu.Unlock()
	if len(ids) == 0 {
		return nil
	}
	err := w.inbox.EndAttempts(ctx, subscriber, ids)
	if err != nil {
		w.owe(ids)
	}
	return err
}

func newCrashWatch(inbox any, runner string, limit int) *crashWatch {
	w := &crashWatch{runner: runner, limit: limit}
	w.inbox, _ = inbox.(CrashInbox)
	return w
}

// suspects tells whether an attempt at m has to be noted.
func (w *crashWatch) suspects(m *Message) bool { return w.inbox != nil && m.Redelivered }

var errCrash = errors.New("the attempts at this message ended their process, or were cut short with it")

func crashed(times int) error {
	return fmt.Errorf("%w, %d times in a row: look for the cause (memory? os.Exit?), and then retry it or let it go", errCrash, times)
}

// try is attempt, for a message that may have ended a process before as for a
// batch of those that have not. The former is noted only when it is its turn:
// while it waits, it must not be blamed for another's crash.
func (s *streamRun[Tx]) try(ctx context.Context, session Session[Tx], p pass, b *batch, next func() []*Message) result {
	r, w, t := s.runner, s.runner.crashes, b.tasks[0]
	if t.crashes == 0 {
		res, begun := s.tryAmongOthers(ctx, session, p, b, next)
		if begun {
			return res
		}
	}
	w.alone.Lock()
	defer w.alone.Unlock()
	if res, ok := s.note(ctx, b.tasks, true); !ok {
		return res
	}
	if t.crashes >= w.limit {
		return result{fate: rejected, reason: ReasonCrash, err: crashed(t.crashes)}
	}
	return r.attempt(ctx, session, p, b.ms, nil)
}

// tryAmongOthers does not begin when a message is found to have been in a handler
// when a process ended. In a batch, the others have to do without it.
func (s *streamRun[Tx]) tryAmongOthers(ctx context.Context, session Session[Tx], p pass, b *batch,
	next func() []*Message) (res result, begun bool) {
	w := s.runner.crashes
	w.alone.RLock()
	defer w.alone.RUnlock()
	if res, ok := s.note(ctx, b.tasks, false); !ok {
		return res, true
	}
	if crashed := slices.ContainsFunc(b.tasks, func(t *task) bool { return t.crashes > 0 }); crashed {
		return result{fate: divided}, len(b.tasks) > 1
	}
	if b.noted() {
		next = nil // the session is closed before the end of the attempt is noted
	}
	return s.runner.attempt(ctx, session, p, b.ms, next), true
}

// noted tells whether the attempt at b is: that of all, or of none.
func (b *batch) noted() bool { return b.tasks[0].noted }

// note notes that attempts begin, where that is called for. Without it the
// messages must not be handled.
func (s *streamRun[Tx]) note(ctx context.Context, ts []*task, alone bool) (res result, ok bool) {
	w := s.runner.crashes
	var ids []string
	var found []*task
	for _, t := range ts {
		if !t.noted && w.suspects(t.m) {
			found = append(found, t)
			ids = append(ids, t.m.ID)
		}
	}
	if len(found) == 0 {
		return result{}, true
	}
	var crashes []int
	err := w.end(ctx, s.runner.cfg.Subscriber, nil)
	if err == nil {
		crashes, err = w.inbox.BeginAttempts(ctx, s.runner.cfg.Subscriber, ids, w.runner, alone)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return result{fate: cut, err: err}, false
	case err != nil:
		return result{fate: away, err: err}, false
	case len(crashes) != len(found):
		return result{fate: fatal, err: fmt.Errorf("the inbox returned %d counts of crashes for %d messages", len(crashes), len(found))}, false
	}
	for i, t := range found {
		t.crashes = crashes[i]
		if t.noted = t.crashes == 0 || alone; t.noted {
			s.noted.add(t)
		}
	}
	return result{}, true
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

// remove tells whether t was one.
func (n *notedTasks) remove(t *task) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, noted := n.all[t]
	delete(n.all, t)
	return noted
}

func (n *notedTasks) list() []*task {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Keys(n.all))
}

// survived notes that the process has outlived all attempts at ts.
func (s *streamRun[Tx]) survived(ctx context.Context, ts ...*task) {
	var ids []string
	for _, t := range ts {
		if s.noted.remove(t) {
			ids = append(ids, t.m.ID)
		}
	}
	if len(ids) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.runner.cfg.AckTimeout)
	defer cancel()
	if err := s.runner.crashes.end(ctx, s.runner.cfg.Subscriber, ids); err != nil {
		s.log.message(ctx, ts[0].m, "that an attempt came to its end could not be noted yet", err)
	}
}

// survivedAll does that for what the end of the stream leaves behind.
func (s *streamRun[Tx]) survivedAll(ctx context.Context) { s.survived(ctx, s.noted.list()...) }
