package consumer

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// fate is what follows from one attempt.
type fate uint8

const (
	settled   fate = iota // its row is committed: acknowledge
	failed                // the handler's fault: count, and try again with backoff
	contended             // a rival's fault: try again soon
	away                  // the database's fault: pause
	rejected              // not to be attempted: set aside for good
	divided               // not attempted: some of the batch have to go alone
	cut                   // the shutdown's doing: leave unacknowledged
	fatal                 // the runner cannot go on
)

// result is the outcome of one attempt, at a message or at a batch.
type result struct {
	fate     fate
	verdicts []Verdict // when settled
	err      error     // when not
	final    bool      // when failed: trying again does not help
	reason   Reason    // when rejected
	culprit  *Message  // of a batch; nil where nobody knows
	under    bool      // when away: the database went while the handler had it, and not by the handler's own word
	after    bool      // when away: it went when the handler had done its work, in the commit perhaps
}

// attempt claims messages, and handles those that are new. next may give those
// that the session is going to get next.
func (r *Runner[Tx]) attempt(ctx context.Context, session Session[Tx], p pass, ms []*Message, next func() []*Message) result {
	t := trial[Tx]{runner: r, pass: p}
	verdicts, err := session.Process(ctx, ms, func(ctx context.Context, tx Tx, fresh []*Message) error {
		if len(fresh) == 0 || len(fresh) > len(ms) {
			return fmt.Errorf("the inbox called apply with %d messages for %d", len(fresh), len(ms))
		}
		if err := r.admit(ctx, tx, fresh); err != nil {
			return err
		}
		err := t.run(ctx, tx, fresh)
		if len(fresh) == 1 && len(ms) > 1 {
			return Blame(fresh[0], err)
		}
		return err
	}, next)
	if err == nil {
		return judge(ms, verdicts)
	}
	res := t.judge(ctx, err)
	switch {
	case errors.Is(err, errBehind) && t.own == nil:
		res = result{fate: rejected, reason: ReasonBehind, err: errBehind}
	case errors.Is(err, errLate) && t.own == nil:
		res = result{fate: rejected, reason: ReasonLate, err: err}
	}
	res.culprit = Blamed(err)
	return res
}

// admit returns an error for a message that must not be applied although it is
// new.
func (r *Runner[Tx]) admit(ctx context.Context, tx Tx, fresh []*Message) error {
	for _, m := range fresh {
		if err := r.late(m); err != nil {
			return Blame(m, err)
		}
		if err := r.behind(ctx, tx, m); err != nil {
			return Blame(m, err)
		}
	}
	return nil
}

// trial is one run of the handler, and what it is to be judged by.
type trial[Tx any] struct {
	runner   *Runner[Tx]
	pass     pass
	began    bool  // the handler
	several  bool  // messages
	own      error // what the handler returned
	timedOut error // that, and that it was cut short
	closings int64 // of the gate, when the handler began
}

func (t *trial[Tx]) run(ctx context.Context, tx Tx, fresh []*Message) error {
	r := t.runner
	r.databaseAnswered(t.pass)
	t.closings = r.gate.closings.Load()
	t.began, t.several = true, len(fresh) > 1
	ctx, cancel := context.WithTimeoutCause(ctx, r.cfg.HandlerTimeout, ErrHandlerTimeout)
	defer cancel()
	t.own = r.apply(ctx, tx, fresh)
	if ctx.Err() != nil { // whatever the handler says: it was cut short
		t.timedOut = errors.Join(context.Cause(ctx), t.own)
		return t.timedOut
	}
	return t.own
}

// apply calls the handler, and sends what it has gathered.
func (r *Runner[Tx]) apply(ctx context.Context, tx Tx, fresh []*Message) error {
	batch, _ := any(tx).(BatchTx[Tx])
	if err := r.applyAll(ctx, tx, batch, fresh); err != nil || batch == nil {
		return err
	}
	return r.call(func() error { return batch.Flush(ctx) })
}

func (r *Runner[Tx]) applyAll(ctx context.Context, tx Tx, batch BatchTx[Tx], fresh []*Message) error {
	if len(fresh) == 1 {
		return r.call(func() error { return r.handler.Handle(ctx, tx, fresh[0]) })
	}
	if r.cfg.Batch != nil {
		return r.call(func() error { return r.cfg.Batch.HandleBatch(ctx, tx, fresh) })
	}
	for _, m := range fresh {
		if batch != nil {
			tx = batch.For(m)
		}
		if err := r.call(func() error { return r.handler.Handle(ctx, tx, m) }); err != nil {
			return Blame(m, err)
		}
		if ctx.Err() != nil {
			return nil // the time of the batch is over
		}
	}
	return nil
}

// judge tells what follows from err, which is what became of run.
func (t *trial[Tx]) judge(ctx context.Context, err error) result {
	// Permanent has the last word on what the handler itself returned.
	says := func(condition error) bool {
		return errors.Is(err, condition) && !(IsPermanent(t.own) && errors.Is(t.own, condition))
	}
	switch {
	case ctx.Err() != nil:
		return result{fate: cut, err: err}
	case says(ErrOutage): // also a handler that hung because of it
		return result{fate: away, err: err, under: t.own != nil && !errors.Is(t.own, ErrOutage), after: t.began && t.own == nil}
	case t.timedOut != nil && (t.several || t.wasAway()): // and back before anyone could ask it
		return result{fate: contended, err: t.timedOut}
	case t.timedOut != nil:
		return result{fate: failed, err: t.timedOut}
	case says(ErrContention):
		return result{fate: contended, err: err}
	}
	return result{fate: failed, err: err, final: IsPermanent(err)}
}

// wasAway tells whether the database was found to be away since the handler began.
func (t *trial[Tx]) wasAway() bool {
	g := &t.runner.gate
	return g.shut.Load() || g.closings.Load() != t.closings
}

// ErrMismatch is wrapped by the error for a message whose id belongs to
// another message that was processed before.
var ErrMismatch = errors.New("another message was processed under this id; " +
	"the producer reuses ids, or Config.Hash chooses something that changes from delivery to delivery")

// judge settles only what the inbox says is settled, in so many words.
func judge(ms []*Message, verdicts []Verdict) result {
	if len(verdicts) != len(ms) {
		return result{fate: fatal, err: fmt.Errorf("the inbox returned %d verdicts for %d messages", len(verdicts), len(ms))}
	}
	for _, v := range verdicts {
		if v != Processed && v != Duplicate && v != Mismatch {
			return result{fate: fatal, err: fmt.Errorf("the inbox returned an unknown verdict: %d", v)}
		}
	}
	return result{fate: settled, verdicts: verdicts}
}

// call runs a handler, and makes an error of its panic.
func (r *Runner[Tx]) call(handle func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return r.policy.classify(handle())
}

// outageLimit is how often in a row the database may go away under a message's
// handler, or in its commit while others are committed, before the message is
// what takes it away.
const outageLimit = 5

// tookAway is the failure of a message under which the database went away too
// often.
func tookAway(err error) result {
	return result{fate: failed, err: fmt.Errorf("the connection to the database was lost under the handler or its commit, %d times in a row: "+
		"does one of its statements end it? %w", outageLimit, err)}
}

// contentionLimit is how often in a row a message may lose to rivals before
// that counts as a failure, with its longer waits.
const contentionLimit = 20

// contentionBackoff is short, since a rival's transaction is.
var contentionBackoff = Backoff{Min: 5 * time.Millisecond, Max: 250 * time.Millisecond}
