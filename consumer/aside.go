package consumer

import (
	"context"
	"errors"

	"github.com/ackafter/ackafter/internal/limit"
)

// rejected plans to set a message aside that is not to be attempted.
func (s *streamRun[Tx]) rejected(t *task, res result) {
	if s.runner.failures == nil {
		_ = s.runner.fail(&MessageError{ID: t.m.ID, Position: t.m.Position, Err: res.err})
		return
	}
	m := *t.m
	if res.reason == ReasonMismatch {
		m.ID = mismatched(t.m)
	}
	t.aside = &Failure{Message: &m, Reason: res.reason, Error: errorText(res.err), RetryIn: forGood}
	t.err = res.err
	s.again(t, 0)
}

// setAside does what failed or rejected has planned. Nothing but its commit
// settles the message.
func (s *streamRun[Tx]) setAside(ctx context.Context, t *task, p pass) {
	r := s.runner
	verdict, err := r.failures.SetAside(ctx, r.cfg.Subscriber, *t.aside)
	switch {
	case err == nil:
		r.databaseWorks(p)
		if verdict == SetAside {
			s.log.setAside(ctx, *t.aside, t.err)
			r.tell(ctx, *t.aside)
		}
		var acks limit.Timer
		defer acks.Stop()
		s.acknowledge(ctx, []*task{t}, []*Message{t.m}, []Verdict{verdict}, &acks)
	case ctx.Err() != nil:
		r.gate.leave(p)
	case errors.Is(err, ErrContention):
		r.databaseWorks(p)
		s.again(t, contentionBackoff.wait(1))
	default: // whatever it is: a message is never dropped because of it
		r.databaseAway(err, p)
		s.again(t, 0)
	}
}
