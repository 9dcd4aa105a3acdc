package inbox

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ackafter/ackafter/consumer"
)

// claim begins a transaction and claims c in it, in one round trip.
func (s *session) claim(ctx context.Context, c *claim) error {
	ctx, cancel := context.WithTimeout(ctx, s.in.cfg.ClaimTimeout)
	defer cancel()
	var b pgx.Batch
	if s.conn == nil {
		conn, err := s.in.pool.Acquire(ctx)
		if err != nil {
			return s.in.noConnection(err)
		}
		s.conn = conn
		b.BeginTx(pgx.TxOptions{IsoLevel: s.in.cfg.Isolation}) // to have s.tx
	} else {
		b.Queue(s.in.sql.begin)
	}
	s.queueClaim(&b, c)
	results := s.conn.SendBatch(ctx, &b)
	if tx := results.Tx(); tx != nil {
		s.tx = tx
	}
	err := readClaim(results, c)
	if closed := results.Close(); err == nil {
		err = closed
	}
	return s.claimFailed(ctx, err)
}

func (s *session) queueClaim(b *pgx.Batch, c *claim) {
	if len(c.ids) == 1 {
		b.Queue(s.in.sql.claimOne, s.subscriber, c.ids[0], c.hashes[0])
		return
	}
	b.Queue(s.in.sql.claim, s.subscriber, c.ids, c.hashes)
}

// finish commits the transaction that holds c, which costs next to nothing when
// nothing was new. The claim of s.ahead travels along; what comes of it is for
// the next Process, and never spoils what this one reports.
//
// Each step is skipped by the server when one before it failed, so that
// nothing is claimed ahead behind a commit that was refused.
func (s *session) finish(ctx context.Context, c *claim) error {
	limit := s.in.cfg.CommitTimeout
	var b pgx.Batch
	seen := c.notFresh()
	if len(seen) > 0 {
		b.Queue(s.in.sql.lookup, s.subscriber, seen)
	}
	if len(seen) < len(c.ids) {
		b.Queue(s.in.sql.unchanged, c.xid)
	} else {
		b.Queue(s.in.sql.confirm)
	}
	b.Queue("commit")
	if s.ahead != nil {
		limit += s.in.cfg.ClaimTimeout
		b.Queue(s.in.sql.begin)
		s.queueClaim(&b, s.ahead)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	results := s.conn.SendBatch(ctx, &b)
	end := readEnd(results, c, len(seen) > 0)
	var ahead error
	if end.ok() && s.ahead != nil {
		ahead = readClaim(results, s.ahead)
	}
	if closed := results.Close(); ahead == nil {
		ahead = closed
	}
	if err := s.explain(end); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		// The server may have answered because pgx cancelled its wait for a
		// standby, with the time limit: that is no confirmation.
		return unknown(err)
	}
	if s.ahead != nil {
		s.ahead.err = s.claimFailed(ctx, ahead)
	}
	return c.unexplained()
}

// ending is what the server said at the end of a transaction.
type ending struct {
	before error // of a statement in front of the commit
	commit error
	tag    string // of the commit
}

func (e ending) ok() bool { return e.before == nil && e.commit == nil && e.tag == "COMMIT" }

func readEnd(results pgx.BatchResults, c *claim, looked bool) (e ending) {
	if looked {
		if e.before = readHashes(results, c); e.before != nil {
			return e
		}
	}
	if _, e.before = results.Exec(); e.before != nil { // unchanged, or confirm
		return e
	}
	tag, err := results.Exec()
	e.tag, e.commit = tag.String(), err
	return e
}

// explain returns nil when the transaction was committed.
func (s *session) explain(e ending) error {
	switch {
	case e.before != nil:
		return s.notEnded(e.before)
	case e.commit != nil:
		return s.refused(e.commit)
	case e.tag != "COMMIT":
		return fmt.Errorf("%w: the server answered COMMIT with %s", ErrSQLFailed, e.tag)
	}
	return nil
}

// readClaim reads the replies to begin and claim.
func readClaim(results pgx.BatchResults, c *claim) error {
	if _, err := results.Exec(); err != nil {
		return err
	}
	rows, err := results.Query()
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		values := rows.RawValues() // both are text, which has one format only
		c.inserted(string(values[0]), string(values[1]))
	}
	rows.Close()
	return rows.Err()
}

// readHashes reads the reply to lookup.
func readHashes(results pgx.BatchResults, c *claim) error {
	rows, err := results.Query()
	if err != nil {
		return err
	}
	var (
		id   string
		hash []byte
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &hash}, func() error {
		c.stored(id, hash)
		return nil
	})
	return err
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
