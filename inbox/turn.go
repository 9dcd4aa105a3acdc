package inbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ackafter/ackafter/consumer"
)

// claim begins a transaction and claims c in it, in one round trip.
func (s *session) claim(ctx context.Context, c *claim) error {
	ctx, cancel := s.limit.Context(ctx, s.in.cfg.ClaimTimeout)
	defer cancel()
	if s.conn == nil {
		conn, err := s.in.pool.Acquire(ctx)
		if err != nil {
			return s.in.noConnection(err)
		}
		s.conn = conn
	}
	t := newTrip()
	t.add(s.in.sql.begin)
	s.addAskRole(t)
	s.addClaim(t, c)
	return s.claimFailed(ctx, s.send(ctx, t))
}

func (s *session) addClaim(t *trip, c *claim) {
	if len(c.ids) == 1 {
		t.add(s.in.sql.claimOne, s.subscriber, c.ids[0], c.hashes[0]).tag = func(tag pgconn.CommandTag) {
			c.mine[0] = tag.RowsAffected() == 1
		}
		return
	}
	t.add(s.in.sql.claim, s.subscriber, c.ids, c.hashes).row = func(values [][]byte) {
		c.mine[c.index[string(values[0])]] = true
	}
}

// finish commits the transaction that holds c, which costs next to nothing when
// nothing was new. The claim of s.ahead travels along; what comes of it is for
// the next Process, and never spoils what this one reports.
//
// Each step is skipped by the server when one before it failed, so that
// nothing is claimed ahead behind a commit that was refused.
//
// suspect says that SQL of the handler may have ended the transaction, or
// changed what the next one would inherit.
func (s *session) finish(ctx context.Context, c *claim, suspect bool) error {
	limit := s.in.cfg.CommitTimeout
	if s.ahead != nil {
		limit += s.in.cfg.ClaimTimeout
	}
	ctx, cancel := s.limit.Context(context.WithoutCancel(ctx), limit)
	defer cancel()

	t := newTrip()
	s.addEnd(t, c, suspect)
	before := len(t.steps)
	var commit pgconn.CommandTag
	s.addCommit(t, suspect).tag = func(tag pgconn.CommandTag) { commit = tag }
	if s.ahead != nil {
		if suspect {
			t.add(s.in.sql.begin)
		}
		s.addClaim(t, s.ahead)
	}
	err := s.send(ctx, t)
	if err := s.explain(ctx, err, t.answered-before, commit); err != nil {
		return err
	}
	if s.ahead != nil {
		s.ahead.err, s.ahead.made = s.claimFailed(ctx, err), time.Now()
	}
	return c.unexplained()
}

// sendCommit sends t with a commit at its end. It returns nil when that is known
// to have succeeded.
func (s *session) sendCommit(ctx context.Context, t *trip) error {
	before := len(t.steps)
	var commit pgconn.CommandTag
	t.add(s.in.sql.commit).tag = func(tag pgconn.CommandTag) { commit = tag }
	err := s.send(ctx, t)
	return s.explain(ctx, err, t.answered-before, commit)
}

// explain returns nil when the transaction was committed: err is that of the
// round trip, and answered how many steps it has carried out of those from the
// commit on, negative when an earlier one failed.
func (s *session) explain(ctx context.Context, err error, answered int, commit pgconn.CommandTag) error {
	switch {
	case answered < 0:
		return s.notEnded(err)
	case answered == 0:
		return s.refused(err)
	case commit.String() != "COMMIT":
		return fmt.Errorf("%w: the server answered COMMIT with %s", ErrSQLFailed, commit)
	}
	if err := ctx.Err(); err != nil {
		// The server may have answered because pgx cancelled its wait for a
		// standby, with the time limit: that is no confirmation.
		return unknown(err)
	}
	return nil
}

// addEnd adds what comes before the commit.
func (s *session) addEnd(t *trip, c *claim, suspect bool) {
	mine, seen := c.split()
	if len(mine) > 0 && (suspect || len(seen) > 0) {
		s.addRole(t)
	}
	if len(seen) > 0 {
		lookup := t.add(s.in.sql.lookup, s.subscriber, seen)
		lookup.unprepared = true // a plan from when the table was small would read all of it
		lookup.row = func(values [][]byte) {
			c.stored(values[0], values[1])
		}
	}
	switch {
	case len(mine) == 0:
		t.add(s.in.sql.confirm)
	case suspect:
		t.add(s.in.sql.unchanged, s.subscriber, mine[0])
	}
}

// addCommit adds the commit, which begins the next transaction where one is to
// follow and can be like this one.
func (s *session) addCommit(t *trip, suspect bool) *step {
	if s.ahead != nil && !suspect {
		return t.add(s.in.sql.commitAndBegin)
	}
	return t.add(s.in.sql.commit)
}

// notEnded explains an error in front of the commit: with it, the server skips
// the commit.
func (s *session) notEnded(err error) error {
	var pgErr *pgconn.PgError
	switch {
	case !errors.As(err, &pgErr):
		return unknown(err)
	case strings.Contains(pgErr.Message, endedBySQL):
		return ErrTransactionEnded
	}
	return s.blame(context.Background(), err, nil)
}

// refused explains an error of the commit itself. A server that goes on
// afterwards has given its answer: nothing was committed.
func (s *session) refused(err error) error {
	var pgErr *pgconn.PgError
	switch {
	case !errors.As(err, &pgErr):
		return unknown(err)
	case isSlowHandler(pgErr):
		return fmt.Errorf("inbox: commit: %w", err)
	case s.pg().IsClosed():
		return unknown(err)
	case isContention(pgErr):
		return fmt.Errorf("inbox: commit: %w: %w", consumer.ErrContention, err)
	case isOutage(pgErr):
		return fmt.Errorf("inbox: commit: %w: %w", consumer.ErrOutage, err)
	}
	return fmt.Errorf("inbox: commit refused: %w", err)
}

func unknown(err error) error {
	return fmt.Errorf("inbox: commit: %w: %w", consumer.ErrOutcomeUnknown, err)
}
