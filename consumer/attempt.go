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
	cut                   // the shutdown's doing: leave unacknowledged
	fatal                 // the runner cannot go on
)

// result is the outcome of one attempt.
type result struct {
	fate    fate
	verdict Verdict // when settled
	err     error   // when not
}

// attempt claims a message, and handles it when it is new. next may give the
// message that the session is going to get next.
func (r *Runner[Tx]) attempt(ctx context.Context, session Session[Tx], p pass, ms []*Message, next func() []*Message) result {
	var own, timedOut error // what the handler returned, and that it was cut short
	knownAway := false      // the database, when the handler timed out
	apply := func(ctx context.Context, tx Tx, fresh []*Message) error {
		if len(fresh) != 1 {
			return fmt.Errorf("the inbox called apply with %d messages for one", len(fresh))
		}
		r.databaseAnswered(p)
		ctx, cancel := context.WithTimeoutCause(ctx, r.cfg.HandlerTimeout, ErrHandlerTimeout)
		defer cancel()
		own = r.call(ctx, tx, fresh[0])
		if ctx.Err() != nil { // whatever the handler says: it was cut short
			timedOut = errors.Join(context.Cause(ctx), own)
			knownAway = r.gate.shut.Load()
			return timedOut
		}
		return own
	}
	// Permanent has the last word on what the handler itself returned.
	says := func(err, condition error) bool {
		return errors.Is(err, condition) && !(IsPermanent(own) && errors.Is(own, condition))
	}
	verdicts, err := session.Process(ctx, ms, apply, next)
	switch {
	case err == nil:
		return judge(verdicts)
	case ctx.Err() != nil:
		return result{fate: cut, err: err}
	case says(err, ErrOutage): // also a handler that hung because of it
		return result{fate: away, err: err}
	case timedOut != nil && knownAway: // and back before anyone could ask it
		return result{fate: contended, err: timedOut}
	case timedOut != nil:
		return result{fate: failed, err: timedOut}
	case says(err, ErrContention):
		return result{fate: contended, err: err}
	case IsPermanent(err):
		return result{fate: fatal, err: err}
	}
	return result{fate: failed, err: err}
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
		return result{fate: fatal, err: ErrMismatch}
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
	return r.handler.Handle(ctx, tx, m)
}

// contentionLimit is how often in a row a message may lose to rivals before
// that counts as a failure, with its longer waits.
const contentionLimit = 20

// contentionBackoff is short, since a rival's transaction is.
var contentionBackoff = Backoff{Min: 5 * time.Millisecond, Max: 250 * time.Millisecond}

// retryWait returns how long to wait after a failure.
func (r *Runner[Tx]) retryWait(err error, failures int) time.Duration {
	var after *retryAfterError
	if errors.As(err, &after) {
		return after.after
	}
	return r.cfg.Retry.wait(failures)
}
