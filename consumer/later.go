package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// later tries again what was set aside and is due, one message after the other,
// until ctx ends. Other processes do the same; the inbox divides the messages.
func (r *Runner[Tx]) later(ctx context.Context, inbox FailureInbox[Tx]) error {
	work, cutShort := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cutShort(nil)
	l := &retryLoop[Tx]{Runner: r, inbox: inbox, turn: tries[Tx]{runner: r}}
	var worker sync.WaitGroup
	worker.Go(func() {
		returned := false
		defer func() {
			if !returned {
				_ = r.fail(errGoexit)
			}
		}()
		defer l.turn.over(false)
		timer := time.NewTimer(0)
		defer timer.Stop()
		for {
			select {
			case <-ctx.Done():
				returned = true
				return
			case <-timer.C:
			}
			for more := true; more && ctx.Err() == nil; {
				more = l.next(ctx, work)
			}
			timer.Reset(jittered(r.cfg.RetryPoll))
		}
	})
	<-ctx.Done()
	return r.drain("failed_messages", &worker, cutShort)
}

// retryLoop is what tries messages from failed_messages. It is used by one
// goroutine.
type retryLoop[Tx any] struct {
	*Runner[Tx]
	inbox       FailureInbox[Tx]
	turn        tries[Tx] // at the dead letters
	spent       *Failure  // could not be published: its last attempt is not repeated
	contentions lostCount
	outages     lostCount // under the handler or in its commit
	known       int64     // how many commits the runner had at the last of the latter
}

var errSpent = errors.New("the last attempt at this message has failed before")

// isSpent tells whether f is the message whose last attempt has failed.
func (l *retryLoop[Tx]) isSpent(f Failure) bool {
	return l.spent != nil && l.spent.Message.ID == f.Message.ID && l.spent.Attempts == f.Message.Attempt
}

// next tries one message, and tells whether to look for another at once.
func (l *retryLoop[Tx]) next(ctx, work context.Context) (more bool) {
	if l.turn.failed == 0 && !l.standstill.pass(ctx.Done()) {
		return false
	}
	r := l.retryDue(ctx, work)
	if r.unburied != nil {
		return l.turn.wait(r.unburied, ctx.Done())
	}
	if !r.away {
		l.turn.over(ctx.Err() == nil)
	}
	if r.told != nil {
		l.tell(work, *r.told)
	}
	return r.more
}

// retried is what became of one look at failed_messages.
type retried struct {
	more     bool     // whether to look again at once
	away     bool     // the database
	told     *Failure // what was set aside for good
	unburied error    // why a dead letter could not be published
}

// retry is one attempt at a message from failed_messages.
type retry[Tx any] struct {
	*retryLoop[Tx]
	trial    trial[Tx]
	res      result
	cause    error // what RetryDue returns once that is stored
	buried   bool  // it is in the dead letters
	unburied error
}

// retryDue tries one message.
func (l *retryLoop[Tx]) retryDue(ctx, work context.Context) retried {
	if !l.transactions.acquire(ctx.Done()) {
		return retried{}
	}
	defer l.transactions.release()
	p, ok := l.gate.enter(ctx.Done())
	if !ok {
		return retried{}
	}
	t := &retry[Tx]{retryLoop: l, trial: trial[Tx]{runner: l.Runner, pass: p}}
	f, err := l.inbox.RetryDue(work, l.cfg.Subscriber, func(ctx context.Context, tx Tx, f Failure) error {
		if f.Crashes >= l.crashes.limit {
			return errCrash
		}
		if l.isSpent(f) {
			return errSpent
		}
		if f.Reason != ReasonBehind { // of which the inbox has chosen the first
			if err := l.behind(ctx, tx, f.Message); err != nil {
				return err
			}
		}
		return t.trial.run(ctx, tx, []*Message{f.Message})
	}, func(f *Failure, err error) Disposition { return t.failed(work, f, err) })
	return t.outcome(work, f, err, p)
}

// failed judges an attempt, and tells what is to become of its message.
func (t *retry[Tx]) failed(work context.Context, f *Failure, err error) Disposition {
	t.cause, t.res = err, result{fate: failed, err: err}
	switch {
	case errors.Is(err, errCrash) && t.trial.own == nil:
		f.Reason, f.Error, f.RetryIn = ReasonCrash, crashed(f.Crashes).Error(), forGood
	case errors.Is(err, errBehind) && t.trial.own == nil:
		// Whoever has made it due wants it to run, in its turn.
		f.Reason, f.Error, f.RetryIn = ReasonBehind, errBehind.Error(), forGood
	case errors.Is(err, errSpent) && t.trial.own == nil:
		*f = *t.spent
	default:
		t.res = t.judge(work, f.Message, err)
		if t.res.fate != failed {
			return Undone
		}
		*f = t.policy.aside(f.Message, f.Message.Attempt, t.res)
	}
	if !t.dead(*f) {
		return Stored
	}
	return t.bury(work, *f)
}

// judge is that of the trial, with an end to contention.
func (t *retry[Tx]) judge(work context.Context, m *Message, err error) result {
	res := t.trial.judge(work, err)
	if res.fate != contended {
		t.contentions.forget(m.ID)
	} else if t.contentions.tooMany(m.ID, contentionLimit) {
		t.contentions.forget(m.ID)
		res.fate = failed
	}
	if !res.under && !res.after {
		t.outages.forget(m.ID)
	} else if t.toBlame(res, &t.known) && t.outages.tooMany(m.ID, outageLimit) {
		t.outages.forget(m.ID)
		res = tookAway(err)
	}
	return res
}

// bury publishes f while its message is taken.
func (t *retry[Tx]) bury(work context.Context, f Failure) Disposition {
	t.spent = nil
	err := t.publish(work, f)
	switch {
	case err == nil:
		t.buried = true
		return Discarded
	case work.Err() != nil:
		t.res = result{fate: cut, err: err}
		return Undone
	case errors.Is(err, ErrRefused):
		t.log.problem(work, "the dead letters refuse a message, which stays in failed_messages", err)
		return Stored
	}
	t.unburied, t.spent = fmt.Errorf("dead letters: %w", err), &f
	return Undone
}

// outcome tells what follows from what RetryDue has returned.
func (t *retry[Tx]) outcome(work context.Context, f *Failure, err error, p pass) retried {
	switch {
	case err == nil && f == nil:
		t.databaseWorks(p)
		return retried{}
	case err == nil:
		t.databaseWorks(p)
		t.commits.Add(1)
		t.contentions.forget(f.Message.ID)
		t.log.retried(work, f)
		return retried{more: true}
	case errors.Is(err, ErrOutage) && (t.res.fate != failed || !errors.Is(t.cause, ErrOutage)): // perhaps in storing a failure
		t.databaseAway(err, p)
		return retried{more: true, away: true} // the gate waits
	case t.unburied != nil:
		t.databaseWorks(p)
		return retried{unburied: t.unburied}
	case t.res.fate == failed && errors.Is(err, ErrRefused) && !errors.Is(t.cause, ErrRefused):
		t.databaseWorks(p)
		t.log.unstored(work, *f, err, t.cfg.RetryPoll)
		return retried{}
	case t.res.fate == failed && (!errors.Is(err, ErrContention) || errors.Is(t.cause, ErrContention)):
		t.databaseWorks(p)
		t.log.setAside(work, *f, t.res.err, t.buried)
		return retried{more: true, told: f}
	case t.res.fate == cut:
		t.gate.leave(p)
		return retried{}
	}
	t.databaseWorks(p)
	t.log.problem(work, "a message that was set aside is tried again soon", err)
	return retried{}
}

// lostCount counts how often messages from failed_messages have come to nothing
// through no fault of their handler's, in a row and in this process. It may
// forget.
type lostCount struct{ times map[string]int }

// tooMany notes one time, and tells whether that is beyond the limit.
func (c *lostCount) tooMany(id string, limit int) bool {
	if c.times == nil || len(c.times) > 1000 { // others may have processed them meanwhile
		c.times = map[string]int{}
	}
	c.times[id]++
	return c.times[id] > limit
}

func (c *lostCount) forget(id string) { delete(c.times, id) }

// tell calls the hook for a message that is set aside for good.
func (r *Runner[Tx]) tell(ctx context.Context, f Failure) {
	if r.cfg.OnSetAside == nil || !f.ForGood() {
		return
	}
	defer func() {
		if v := recover(); v != nil {
			r.log.problem(ctx, "Config.OnSetAside panicked", &PanicError{Value: v})
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, r.cfg.AckTimeout)
	defer cancel()
	r.cfg.OnSetAside(ctx, f)
}
