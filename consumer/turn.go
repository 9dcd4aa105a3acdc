package consumer

import (
	"context"
	"time"

	"github.com/ackafter/ackafter/internal/limit"
)

// begin handles t, and what else is ready, in one session of the inbox.
func (s *streamRun[Tx]) begin(ctx context.Context, t *task) {
	r := s.runner
	if !r.standstill.pass(s.stop) {
		return
	}
	if t.aside != nil {
		s.putAside(ctx, t)
		return
	}
	if !r.transactions.acquire(s.stop) {
		return
	}
	defer r.transactions.release()
	p, ok := r.gate.enter(s.stop) // after the wait for a turn, in which the database may have gone
	if !ok {
		return
	}
	turn := sessionTurn[Tx]{streamRun: s, session: openSession(r.cfg.Inbox, r.cfg.Subscriber), began: time.Now()}
	defer turn.session.Close(ctx)
	defer turn.acks.Stop()
	turn.run(ctx, t, p)
}

// sessionTurn is what a worker does in one session: one batch after the other.
type sessionTurn[Tx any] struct {
	*streamRun[Tx]
	session Session[Tx]
	began   time.Time
	acks    limit.Timer
	carried *task // was taken, and goes first in the next batch
}

func (s *sessionTurn[Tx]) run(ctx context.Context, t *task, p pass) {
	b, ahead := &batch{}, &batch{}
	s.start(b, t)
	for {
		ahead.reset()
		b.began = time.Now()
		res := s.try(ctx, s.session, p, b, func() []*Message {
			s.gather(ahead)
			if len(ahead.tasks) > 0 && s.apart(ahead.tasks[0]) {
				return nil
			}
			return ahead.ms
		})
		if b.noted() {
			s.session.Close(ctx) // to note that needs a connection, of which there may be one only
		}
		if res.fate == away { // first those that were not begun, or b would keep them waiting for ever
			s.giveBack(ahead.tasks)
			ahead.reset()
		}
		s.act(ctx, b, res, p, &s.acks)
		p = 0
		if len(ahead.tasks) == 0 && res.fate == settled {
			s.gather(ahead) // perhaps the next of the same key
		}
		if len(ahead.tasks) == 0 {
			break
		}
		if s.apart(ahead.tasks[0]) || s.stopped() {
			s.giveBack(ahead.tasks) // they were not begun
			break
		}
		b, ahead = ahead, b
	}
	if s.carried != nil {
		s.again(s.carried, 0)
	}
}

// start puts t into b, and what may go with it.
func (s *sessionTurn[Tx]) start(b *batch, t *task) {
	b.add(t)
	if s.size.max > 1 && t.aside == nil && t.crashes == 0 {
		s.carried = s.fill(b)
	}
}

// gather puts the next messages into b, none when the session should end.
func (s *sessionTurn[Tx]) gather(b *batch) {
	r := s.runner
	if s.stopped() || r.gate.shut.Load() || r.standstill.holds.Load() || r.transactions.crowded() && time.Since(s.began) > maxTurn {
		return
	}
	t := s.carried
	s.carried = nil
	if t == nil {
		t = s.take()
	}
	if t != nil {
		s.start(b, t)
	}
}

// maxTurn is how long a session may go on while others wait for theirs: long
// enough to gain from keeping a connection, short enough to be fair.
const maxTurn = 20 * time.Millisecond

// apart tells whether t needs the database apart from a session.
func (s *streamRun[Tx]) apart(t *task) bool { return t.aside != nil || s.runner.crashes.suspects(t.m) }

// act does what follows from an attempt.
func (s *streamRun[Tx]) act(ctx context.Context, b *batch, res result, p pass, acks *limit.Timer) {
	r, t := s.runner, b.tasks[0]
	if res.fate != contended {
		t.contentions = 0
	}
	if res.fate != away {
		t.outages = 0
	}
	switch res.fate {
	case away:
		s.away(ctx, b, res, p)
		return
	case cut:
		r.gate.leave(p)
		s.log.message(ctx, t.m, "attempt cut short by the shutdown; the message will be delivered again", res.err)
		return
	case fatal:
		r.gate.leave(p)
		_ = r.fail(&MessageError{ID: t.m.ID, Position: t.m.Position, Err: res.err})
		return
	}
	r.databaseWorks(p)
	switch {
	case res.fate == divided:
		s.giveBack(b.tasks)
	case res.fate == settled:
		s.settle(ctx, b, res.verdicts, acks)
	case len(b.tasks) > 1:
		s.split(ctx, b, res)
	case res.fate == contended:
		s.contended(ctx, t, res.err)
	case res.fate == failed:
		s.failed(ctx, t, res)
	case res.fate == rejected:
		s.rejected(t, res)
	}
}

// away pauses, and tries the messages again afterwards: a batch in smaller ones, in
// case one of its messages is what took the database away. That one is told by
// its being alone.
func (s *streamRun[Tx]) away(ctx context.Context, b *batch, res result, p pass) {
	n, t := len(b.tasks), b.tasks[0]
	if n == 1 && s.runner.toBlame(res, &t.commits) {
		if t.outages++; t.outages > outageLimit {
			t.outages = 0
			s.runner.gate.leave(p)
			s.failed(ctx, t, tookAway(res.err))
			return
		}
	}
	s.runner.databaseAway(res.err, p)
	if (res.under || res.after) && n > 1 {
		for _, t := range b.tasks {
			t.most = (n + 1) / 2
		}
	}
	s.giveBack(b.tasks)
}

// toBlame tells whether an outage speaks against the message that met it. One in
// its commit does only when others were committed since the last one, which known
// holds: else it may be that nothing can be.
func (r *Runner[Tx]) toBlame(res result, known *int64) bool {
	if !res.after {
		return res.under
	}
	before := *known
	*known = r.commits.Load()
	return *known != before
}

// settle acknowledges what the inbox says is settled, and plans to set aside
// what it refuses.
func (s *streamRun[Tx]) settle(ctx context.Context, b *batch, verdicts []Verdict, acks *limit.Timer) {
	s.size.worked(len(b.tasks))
	s.runner.commits.Add(1)
	kept := 0
	for i, t := range b.tasks {
		if verdicts[i] == Mismatch {
			s.rejected(t, result{reason: ReasonMismatch, err: ErrMismatch})
			continue
		}
		b.tasks[kept], b.ms[kept], verdicts[kept] = t, t.m, verdicts[i]
		kept++
	}
	if kept > 0 {
		s.acknowledge(ctx, b.tasks[:kept], b.ms[:kept], verdicts[:kept], acks)
	}
}

// acknowledge is reached only with rows that are known to be committed.
func (s *streamRun[Tx]) acknowledge(ctx context.Context, ts []*task, ms []*Message, verdicts []Verdict, acks *limit.Timer) {
	s.survived(ctx, ts...) // before, or a crash in between would leave the note for ever
	ackCtx, cancel := acks.Context(context.WithoutCancel(ctx), s.runner.cfg.AckTimeout)
	defer cancel()
	err := s.stream.Ack(ackCtx, ms...)
	s.advanced.Store(time.Now().UnixNano())
	s.log.settled(ctx, ms, verdicts, err)
	s.settled(ts...)
}

// failed counts an attempt, and plans what follows.
func (s *streamRun[Tx]) failed(ctx context.Context, t *task, res result) {
	r := s.runner
	switch {
	case r.setsAside() && !r.policy.holds(t.m.Attempt, res):
		f := r.policy.aside(t.m, t.m.Attempt, res)
		t.aside, t.err = &f, res.err
		s.again(t, 0) // without the connection of this session
		return
	case res.final: // and nowhere to set it aside
		_ = r.fail(&MessageError{ID: t.m.ID, Position: t.m.Position, Err: res.err})
		return
	}
	wait := r.policy.wait(t.m.Attempt, res.err)
	s.log.failed(ctx, t.m, res.err, wait)
	t.m.Attempt++
	s.again(t, wait)
}

// contended tries again soon, unless the message has lost too often.
func (s *streamRun[Tx]) contended(ctx context.Context, t *task, err error) {
	t.contentions++
	if t.contentions > contentionLimit {
		t.contentions = 0
		s.failed(ctx, t, result{fate: failed, err: err})
		return
	}
	s.log.contended(ctx, t.m, err)
	s.again(t, contentionBackoff.wait(t.contentions))
}
