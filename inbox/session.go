package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/internal/limit"
)

// Process implements consumer.Inbox.
func (in *Inbox) Process(ctx context.Context, subscriber string, ms []*consumer.Message,
	apply func(ctx context.Context, tx pgx.Tx, fresh []*consumer.Message) error) ([]consumer.Verdict, error) {
	if err := check(subscriber, ms); err != nil {
		return nil, err
	}
	s := in.Session(subscriber)
	defer s.Close(ctx)
	return s.Process(ctx, ms, apply, nil)
}

// check refuses what the table cannot store. The runner has checked it before.
func check(subscriber string, ms []*consumer.Message) error {
	if err := consumer.CheckSubscriber(subscriber); err != nil {
		return fmt.Errorf("inbox: subscriber %w", err)
	}
	for _, m := range ms {
		if err := consumer.CheckID(m.ID); err != nil {
			return fmt.Errorf("inbox: %w", err)
		}
		if n := len(m.Hash); n != 0 && n != 16 {
			return fmt.Errorf("inbox: message %.100q: Hash has %d bytes, and must have 16 or none", m.ID, n)
		}
	}
	return nil
}

// Session implements consumer.SessionInbox. A session holds a connection of
// the pool from its first Process to Close.
func (in *Inbox) Session(subscriber string) consumer.Session[pgx.Tx] {
	return &session{in: in, subscriber: subscriber}
}

// session is one worker's connection, with at most one transaction open.
type session struct {
	in         *Inbox
	subscriber string
	conn       *pgxpool.Conn // nil while none is held
	ahead      *claim        // what the last turn claimed for the next Process
	limit      limit.Timer   // of a round trip
	// savepoint stands before the handler of a retry, so that its changes can be
	// undone while its message stays taken. No handler can guess its name, and
	// set another in front of it.
	savepoint string
}

// Process implements consumer.Session.
func (s *session) Process(ctx context.Context, ms []*consumer.Message,
	apply func(ctx context.Context, tx pgx.Tx, fresh []*consumer.Message) error,
	next func() []*consumer.Message) ([]consumer.Verdict, error) {
	if len(ms) == 0 {
		return nil, nil
	}
	done := false
	defer func() {
		if !done { // by an error, or by a panic in apply
			s.rollback(ctx)
		}
	}()
	c, err := s.claimed(ctx, ms)
	if err != nil {
		return nil, err
	}
	suspect := false
	if fresh := c.fresh(); len(fresh) > 0 {
		if suspect, err = s.apply(ctx, apply, fresh); err != nil {
			return nil, err
		}
	}
	if next != nil {
		s.ahead = newClaim(next())
	}
	if err := s.finish(ctx, c, suspect); err != nil {
		return nil, err
	}
	done = true
	return c.verdicts(), nil
}

// maxAhead is how old a claim may become that was made ahead. An acknowledgement
// may have kept it waiting, for as long as the server lets a transaction be idle,
// and that is no fault of the next handler's.
const maxAhead = 100 * time.Millisecond

// claimed returns the claim of ms, made ahead or now.
func (s *session) claimed(ctx context.Context, ms []*consumer.Message) (*claim, error) {
	if c := s.ahead; c != nil && slices.Equal(c.ms, ms) && time.Since(c.made) < maxAhead {
		s.ahead = nil
		return c, c.err
	}
	s.rollback(ctx) // or what is open would be committed together with ms
	c := newClaim(ms)
	return c, s.claim(ctx, c)
}

// apply runs the handler, and looks at what it left behind. suspect tells whether
// its SQL has to be looked at more closely; see controlsTransaction.
func (s *session) apply(ctx context.Context,
	apply func(ctx context.Context, tx pgx.Tx, fresh []*consumer.Message) error, fresh []*consumer.Message) (suspect bool, err error) {
	guard := &guard{pg: s.pg(), several: len(fresh) > 1}
	returned := false
	defer func() {
		if !returned { // by a panic
			_ = s.regain(guard)
		}
	}()
	tx := &handlerTx{conn: s.conn.Conn(), guard: guard}
	if err = apply(ctx, tx, fresh); err == nil {
		err = tx.Flush(ctx)
	}
	returned = true
	if busy := s.regain(guard); busy != nil {
		return false, errors.Join(busy, err)
	}
	last, broken := guard.lastError()
	if broken != nil && !errors.Is(err, broken) {
		err = errors.Join(broken, err) // what came first is the cause
	}
	if err != nil {
		return false, s.blame(ctx, err, last)
	}
	return guard.suspect(), s.inspect(ctx, last)
}

// Close implements consumer.Session.
func (s *session) Close(ctx context.Context) {
	s.rollback(ctx)
	s.release()
	s.limit.Stop()
}
