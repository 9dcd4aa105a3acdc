package consumer

import (
	"context"
	"errors"
	"fmt"

	"github.com/ackafter/ackafter/internal/limit"
)

// setsAside tells whether there is anywhere to set a message aside for good.
func (r *Runner[Tx]) setsAside() bool { return r.failures != nil || r.cfg.DeadLetter != nil }

// arrived prepares a message that was delivered, and plans to set it aside when it
// is not to be attempted. An error ends the run.
func (s *streamRun[Tx]) arrived(t *task) error {
	r, m := s.runner, t.m
	reason, err := ReasonUnidentified, r.prepare(t)
	if err == nil {
		reason, err = ReasonTooLarge, r.tooLarge(m)
	}
	switch {
	case err == nil:
		return nil
	case !r.setsAside():
		return r.fail(&MessageError{ID: m.ID, Position: m.Position, Err: err})
	}
	m.Attempt = 0
	if reason == ReasonUnidentified {
		m.Hash = nil
		if r.cfg.DeadLetter == nil {
			m.ID = unidentified(m)
		}
	}
	t.aside = &Failure{Message: m, Reason: reason, Error: errorText(err), RetryIn: forGood}
	return nil
}

var errTooLarge = errors.New("the body is too large")

// tooLarge returns an error for a message that is not to be attempted.
func (r *Runner[Tx]) tooLarge(m *Message) error {
	if r.cfg.MaxBody == 0 || len(m.Body) <= r.cfg.MaxBody {
		return nil
	}
	return fmt.Errorf("%w: it has %d bytes, and Config.MaxBody is %d", errTooLarge, len(m.Body), r.cfg.MaxBody)
}

// rejected plans to set a message aside that is not to be attempted.
func (s *streamRun[Tx]) rejected(t *task, res result) {
	r := s.runner
	if !r.setsAside() {
		_ = r.fail(&MessageError{ID: t.m.ID, Position: t.m.Position, Err: res.err})
		return
	}
	m := *t.m
	if res.reason == ReasonMismatch && r.cfg.DeadLetter == nil {
		m.ID = mismatched(t.m)
	}
	t.aside = &Failure{Message: &m, Reason: res.reason, Error: errorText(res.err), RetryIn: forGood}
	t.err = res.err
	s.again(t, 0)
}

// putAside does what arrived, failed or rejected has planned. It comes with
// neither a transaction nor a pass.
func (s *streamRun[Tx]) putAside(ctx context.Context, t *task) {
	r := s.runner
	put := s.store
	if r.dead(*t.aside) {
		put = s.bury
	}
	verdict := put(ctx, t)
	if verdict == 0 {
		return // t was given back, or is left to be delivered again
	}
	r.unstored.remove(t)
	var acks limit.Timer
	defer acks.Stop()
	if verdict == SetAside {
		s.log.setAside(ctx, *t.aside, t.err, r.dead(*t.aside))
	}
	s.acknowledge(ctx, []*task{t}, []*Message{t.m}, []Verdict{verdict}, &acks)
	if verdict == SetAside {
		r.tell(ctx, *t.aside)
	}
}

// store stores a message in failed_messages. Nothing but its commit settles the
// message.
func (s *streamRun[Tx]) store(ctx context.Context, t *task) Verdict {
	r := s.runner
	if !r.transactions.acquire(s.stop) {
		return 0
	}
	defer r.transactions.release()
	p, ok := r.gate.enter(s.stop)
	if !ok {
		return 0
	}
	verdict, err := r.failures.SetAside(ctx, r.cfg.Subscriber, *t.aside)
	switch {
	case err == nil && verdict == Mismatch:
		r.databaseWorks(p)
		s.rejected(t, result{fate: rejected, reason: ReasonMismatch, err: ErrMismatch})
	case err == nil:
		r.databaseWorks(p)
		r.commits.Add(1)
		return verdict
	case ctx.Err() != nil:
		r.gate.leave(p)
	case errors.Is(err, ErrRefused):
		r.databaseWorks(p)
		s.refused(ctx, t, err)
	case errors.Is(err, ErrContention):
		r.databaseWorks(p)
		s.again(t, contentionBackoff.wait(1))
	default: // whatever it is: a message is never dropped because of it
		r.databaseAway(err, p)
		s.again(t, 0)
	}
	return 0
}

// bury publishes a message to the dead letters, as often as that takes. Nothing
// but the broker's confirmation settles the message.
func (s *streamRun[Tx]) bury(ctx context.Context, t *task) Verdict {
	turn := tries[Tx]{runner: s.runner}
	for {
		err := s.runner.publish(ctx, *t.aside)
		switch {
		case err == nil:
			turn.over(true)
			return SetAside
		case ctx.Err() != nil:
			turn.over(false)
			return 0
		case errors.Is(err, ErrRefused):
			turn.over(true)
			s.refused(ctx, t, err)
			return 0
		}
		if !turn.wait(fmt.Errorf("dead letters: %w", err), s.stop) {
			turn.over(false)
			return 0
		}
	}
}

// refused keeps a message that cannot be stored anywhere, and holds up no other.
func (s *streamRun[Tx]) refused(ctx context.Context, t *task, err error) {
	s.runner.unstored.add(s, t, err)
	t.refusals++
	wait := refusedBackoff.wait(t.refusals)
	s.log.unstored(ctx, *t.aside, err, wait)
	s.again(t, wait)
}
