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
	cut                   // the shutdown's doing: leave unacknowledged
	fatal                 // the runner cannot go on
)

// result is the outcome of one attempt.
type result struct {
	fate    fate
	verdict Verdict // when settled
	err     error   // when not
	final   bool    // when failed: trying again does not help
	reason  Reason  // when rejected
}

// attempt claims a message, and handles it when it is new. next may give the
// message that the session is going to get next.
func (r *Runner[Tx]) attempt(ctx context.Context, session Session[Tx], p pass, ms []*Message, next func() []*Message) result {
	t := trial[Tx]{runner: r, pass: p}
	verdicts, err := session.Process(ctx, ms, func(ctx context.Context, tx Tx, fresh []*Message) error {
		if len(fresh) != 1 {
			return fmt.Errorf("the inbox called apply with %d messages for one", len(fresh))
		}
		if err := r.late(fresh[0]); err != nil {
			return err
		}
		if err := r.behind(ctx, tx, fresh[0]); err != nil {
			return err
		}
		return t.run(ctx, tx, fresh[0])
	}, next)
	switch {
	case errors.Is(err, errBehind) && t.own == nil:
		return result{fate: rejected, reason: ReasonBehind, err: errBehind}
	case errors.Is(err, errLate) && t.own == nil:
		return result{fate: rejected, reason: ReasonLate, err: err}
	case err != nil:
		return t.judge(ctx, err)
	}
	return judge(verdicts)
}

// trial is one run of the handler, and what it is to be judged by.
type trial[Tx any] struct {
	runner   *Runner[Tx]
	pass     pass
	own      error // what the handler returned
	timedOut error // that, and that it was cut short
	closings int64 // of the gate, when the handler began
}

func (t *trial[Tx]) run(ctx context.Context, tx Tx, m *Message) error {
	r := t.runner
	r.databaseAnswered(t.pass)
	t.closings = r.gate.closings.Load()
	ctx, cancel := context.WithTimeoutCause(ctx, r.cfg.HandlerTimeout, ErrHandlerTimeout)
	defer cancel()
	t.own = r.call(ctx, tx, m)
	if ctx.Err() != nil { // whatever the handler says: it was cut short
		t.timedOut = errors.Join(context.Cause(ctx), t.own)
		return t.timedOut
	}
	return t.own
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
		return result{fate: away, err: err}
	case t.timedOut != nil && t.wasAway(): // and back before anyone could ask it
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
func judge(verdicts []Verdict) result {
	if len(verdicts) != 1 {
		return result{fate: fatal, err: fmt.Errorf("the inbox returned %d verdicts for one message", len(verdicts))}
	}
	switch v := verdicts[0]; v {
	case Processed, Duplicate:
		return result{fate: settled, verdict: v}
	case Mismatch:
		return result{fate: rejected, reason: ReasonMismatch, err: ErrMismatch}
	default:
		return result{fate: fatal, err: fmt.Errorf("the inbox returned an unknown verdict: %d", v)}
	}
}

// call runs the handler, and makes an error of its panic.
func (r *Runner[Tx]) call(ctx context.Context, tx Tx, m *Message) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return r.policy.classify(r.handler.Handle(ctx, tx, m))
}

// contentionLimit is how often in a row a message may lose to rivals before
// that counts as a failure, with its longer waits.
const contentionLimit = 20

// contentionBackoff is short, since a rival's transaction is.
var contentionBackoff = Backoff{Min: 5 * time.Millisecond, Max: 250 * time.Millisecond}
