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
)

// streamRun is the work on one stream, from its start to its end.
type streamRun[Tx any] struct {
	*dispatcher
	runner   *Runner[Tx]
	stream   Stream
	log      messageLog
	stop     chan struct{} // closed when nothing new may begin
	size     batchSize
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
		size:       batchSize{max: r.cfg.MaxBatch},
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
	r.unstored.leave(s)
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
		tasks := make([]task, len(ms)) // together, or each would be an allocation
		for i, m := range ms {
			t := &tasks[i]
			t.m = m
			if err := s.arrived(t); err != nil {
				return err
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

var errGoexit = errors.New("a handler ended its goroutine with runtime.Goexit; testing.T.FailNow does that")

// work handles one message after the other until the stream stops.
func (s *streamRun[Tx]) work(ctx context.Context) {
	returned := false
	defer func() {
		if !returned { // and not by a panic, which call has made an error of
			_ = s.runner.fail(errGoexit)
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
