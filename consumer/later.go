package consumer

import (
	"context"
	"errors"
	"sync"
	"time"
)

// later tries again what was set aside and is due, one message after the other,
// until ctx ends. Other processes do the same; the inbox divides the messages.
func (r *Runner[Tx]) later(ctx context.Context, inbox FailureInbox[Tx]) error {
	work, cutShort := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cutShort(nil)
	var worker sync.WaitGroup
	worker.Go(func() {
		timer := time.NewTimer(0)
		defer timer.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
			for more := true; more && ctx.Err() == nil; {
				more = r.retryDue(ctx, work, inbox)
			}
			timer.Reset(jittered(r.cfg.RetryPoll))
		}
	})
	<-ctx.Done()
	return r.drain("failed_messages", &worker, cutShort)
}

// retryDue tries one message, and tells whether to look for another at once.
func (r *Runner[Tx]) retryDue(ctx, work context.Context, inbox FailureInbox[Tx]) (more bool) {
	if !r.transactions.acquire(ctx.Done()) {
		return false
	}
	defer r.transactions.release()
	p, ok := r.gate.enter(ctx.Done())
	if !ok {
		return false
	}
	t := trial[Tx]{runner: r, pass: p}
	var res result
	var cause error // what RetryDue returns once that is stored
	f, err := inbox.RetryDue(work, r.cfg.Subscriber, func(ctx context.Context, tx Tx, f Failure) error {
		if f.Crashes >= r.crashes.limit {
			return errCrash
		}
		return t.run(ctx, tx, []*Message{f.Message})
	}, func(f *Failure, err error) bool {
		cause = err
		if errors.Is(err, errCrash) && t.own == nil {
			f.Reason, f.Error, f.RetryIn = ReasonCrash, crashed(f.Crashes).Error(), forGood
			res = result{fate: failed, err: err}
			return true
		}
		if res = t.judge(work, err); res.fate != failed {
			return false
		}
		*f = r.policy.aside(f.Message, f.Message.Attempt, res)
		return true
	})
	switch {
	case err == nil && f == nil:
		r.databaseWorks(p)
		return false
	case err == nil:
		r.databaseWorks(p)
		r.log.retried(work, f)
		return true
	case errors.Is(err, ErrOutage) && (res.fate != failed || !errors.Is(cause, ErrOutage)): // perhaps in storing a failure
		r.databaseAway(err, p)
		return true // the gate waits
	case res.fate == failed:
		r.databaseWorks(p)
		r.setAsideAgain(work, f, res.err)
		return true
	case res.fate == cut:
		r.gate.leave(p)
		return false
	}
	r.databaseWorks(p)
	r.log.problem(work, "a message that was set aside is tried again soon", err)
	return false
}

// setAsideAgain tells of a message that failed once more.
func (r *Runner[Tx]) setAsideAgain(ctx context.Context, f *Failure, err error) {
	r.log.setAside(ctx, *f, err)
	r.tell(ctx, *f)
}

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
	r.cfg.OnSetAside(ctx, f)
}
