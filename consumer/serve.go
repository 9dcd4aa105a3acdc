package consumer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ackafter/ackafter/internal/limit"
)

// streamRun is the work on one stream, from its start to its end.
type streamRun[Tx any] struct {
	*dispatcher
	runner   *Runner[Tx]
	stream   Stream
	log      messageLog
	stop     chan struct{} // closed when nothing new may begin
	noted    notedTasks
	advanced atomic.Int64 // when a message was last settled, Unix nanoseconds
}

// serve works on one stream until it ends or ctx does. Then it lets what has
// begun finish, and leaves the rest to be delivered again.
func (r *Runner[Tx]) serve(ctx context.Context, stream Stream) error {
	s := &streamRun[Tx]{
		dispatcher: newDispatcher(r.cfg.Buffer),
		runner:     r,
		stream:     stream,
		log:        r.log.stream(stream.Name()),
		stop:       make(chan struct{}),
	}
	s.advanced.Store(time.Now().UnixNano())
	r.streams.add(s)
	defer r.streams.remove(s)

	// The end of ctx must not reach the handlers: they have DrainTimeout.
	work, cutShort := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cutShort(nil)
	var workers sync.WaitGroup
	for range r.cfg.Workers {
		workers.Go(func() { s.work(work) })
	}
	err := s.fetch(ctx)
	close(s.stop)
	left := s.close()
	workers.Go(func() { s.release(work, left) })
	err = errors.Join(err, r.drain("stream "+s.stream.Name(), &workers, cutShort))
	s.survivedAll(ctx)
	return err
}

// fetch reads the stream into the dispatcher until either ends.
func (s *streamRun[Tx]) fetch(ctx context.Context) error {
	for {
		room, err := s.room(ctx)
		if err != nil {
			return nil // ctx ended
		}
		ms, err := s.stream.Next(ctx, room)
		if len(ms) > room {
			return s.runner.fail(fmt.Errorf("stream %s: Next returned %d messages, and %d was the limit: "+
				"its source is broken; see brokers/brokertest", s.stream.Name(), len(ms), room))
		}
		for _, m := range ms {
			t := newTask(m)
			if err := s.runner.prepare(m); err != nil {
				if s.runner.failures == nil {
					return s.runner.fail(&MessageError{ID: m.ID, Position: m.Position, Err: err})
				}
				m.ID, m.Attempt, m.Hash = unidentified(m), 0, nil
				t.aside = &Failure{Message: m, Reason: ReasonUnidentified, Error: errorText(err), RetryIn: forGood}
			}
			s.add(t)
		}
		switch {
		case err == nil:
		case ctx.Err() != nil || errors.Is(err, io.EOF):
			return nil
		default: // the source makes a new stream
			s.log.problem(ctx, "stream lost", err)
			return nil
		}
	}
}

// release gives messages back that were not begun.
func (s *streamRun[Tx]) release(ctx context.Context, ms []*Message) {
	r, ok := s.stream.(Releaser)
	if !ok || len(ms) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.runner.cfg.AckTimeout)
	defer cancel()
	if err := r.Release(ctx, ms...); err != nil && s.log.Enabled(ctx, slog.LevelDebug) {
		s.log.DebugContext(ctx, "messages that were not begun come back only with the end of the stream", attrError, err)
	}
}

// drain waits for the workers to finish what they have begun.
func (r *Runner[Tx]) drain(where string, workers *sync.WaitGroup, cutShort context.CancelCauseFunc) error {
	done := make(chan struct{})
	go func() {
		workers.Wait()
		close(done)
	}()
	cfg := &r.cfg
	if waitFor(done, cfg.DrainTimeout) {
		return nil
	}
	cutShort(ErrDrainTimeout)
	if waitFor(done, cfg.AbandonTimeout) {
		return nil
	}
	return r.fail(fmt.Errorf("%s: a handler did not return within %v after its context had ended "+
		"(Config.AbandonTimeout): its goroutine is left behind; let it heed its context",
		where, cfg.AbandonTimeout))
}

func waitFor(done <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// work handles one message after the other until the stream stops.
func (s *streamRun[Tx]) work(ctx context.Context) {
	returned := false
	defer func() {
		if !returned { // and not by a panic, which call has made an error of
			_ = s.runner.fail(errors.New("a handler ended its goroutine with runtime.Goexit; " +
				"testing.T.FailNow does that"))
		}
	}()
	for !s.stopped() { // look at stop first: select chooses at random
		if t := s.next(s.stop); t != nil {
			s.begin(ctx, t)
		}
	}
	returned = true
}

func (s *streamRun[Tx]) stopped() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
}

// begin handles t, and then what else is ready at once, in one session of the
// inbox.
func (s *streamRun[Tx]) begin(ctx context.Context, t *task) {
	r := s.runner
	if !r.transactions.acquire(s.stop) {
		return
	}
	defer r.transactions.release()
	p, ok := r.gate.enter(s.stop) // after the wait for a turn, in which the database may have gone
	if !ok {
		return
	}
	if t.aside != nil {
		s.setAside(ctx, t, p)
		return
	}
	session := openSession(r.cfg.Inbox, r.cfg.Subscriber)
	defer session.Close(ctx)
	var acks limit.Timer
	defer acks.Stop()
	began := time.Now()
	for {
		var ahead *task
		res := s.try(ctx, session, p, t, func() []*Message {
			if ahead = s.another(began); ahead != nil && !s.apart(ahead) {
				return ahead.ms[:]
			}
			return nil
		})
		if t.noted {
			session.Close(ctx) // to note that needs a connection, of which there may be one only
		}
		s.act(ctx, t, res, p, &acks)
		p = 0
		if ahead == nil && res.fate == settled {
			ahead = s.another(began) // perhaps the next of the same key
		}
		if ahead == nil {
			return
		}
		if res.fate == away || s.apart(ahead) || s.stopped() {
			s.again(ahead, 0) // it was not begun
			return
		}
		t = ahead
	}
}

// apart tells whether t needs the database apart from a session.
func (s *streamRun[Tx]) apart(t *task) bool { return t.aside != nil || s.runner.crashes.suspects(t.m) }

// sessionTurn is how long a session may go on while others wait for theirs:
// long enough to gain from keeping a connection, short enough to be fair.
const sessionTurn = 20 * time.Millisecond

// another returns a message for a session to go on with, or nil when it should
// end.
func (s *streamRun[Tx]) another(began time.Time) *task {
	r := s.runner
	if s.stopped() || r.gate.shut.Load() || r.transactions.crowded() && time.Since(began) > sessionTurn {
		return nil
	}
	return s.take()
}

// act does what follows from an attempt.
func (s *streamRun[Tx]) act(ctx context.Context, t *task, res result, p pass, acks *limit.Timer) {
	r := s.runner
	if res.fate != contended {
		t.contentions = 0
	}
	switch res.fate {
	case settled:
		r.databaseWorks(p)
		s.acknowledge(ctx, t, res.verdict, acks)
	case contended:
		r.databaseWorks(p)
		s.contended(ctx, t, res.err)
	case failed:
		r.databaseWorks(p)
		s.failed(ctx, t, res)
	case away:
		r.databaseAway(res.err, p)
		s.again(t, 0)
	case rejected:
		r.databaseWorks(p)
		s.rejected(t, res)
	case cut:
		r.gate.leave(p)
		s.log.message(ctx, t.m, "attempt cut short by the shutdown; the message will be delivered again", res.err)
	case fatal:
		r.gate.leave(p)
		_ = r.fail(&MessageError{ID: t.m.ID, Position: t.m.Position, Err: res.err})
	}
}

// acknowledge is reached only with a row that is known to be committed.
func (s *streamRun[Tx]) acknowledge(ctx context.Context, t *task, v Verdict, acks *limit.Timer) {
	s.survived(ctx, t) // before, or a crash in between would leave the note for ever
	ackCtx, cancel := acks.Context(context.WithoutCancel(ctx), s.runner.cfg.AckTimeout)
	defer cancel()
	err := s.stream.Ack(ackCtx, t.m)
	s.advanced.Store(time.Now().UnixNano())
	s.log.settled(ctx, t.m, v, err)
	s.settled(t)
}

// failed counts an attempt, and plans what follows.
func (s *streamRun[Tx]) failed(ctx context.Context, t *task, res result) {
	r := s.runner
	switch {
	case r.failures != nil && !r.policy.holds(t.m.Attempt, res):
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
