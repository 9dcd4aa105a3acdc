package inbox

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ackafter/ackafter/consumer"
)

// RetryDue implements consumer.FailureInbox.
func (in *Inbox) RetryDue(ctx context.Context, subscriber string,
	apply func(ctx context.Context, tx pgx.Tx, f consumer.Failure) error,
	failed func(f *consumer.Failure, err error) consumer.Disposition) (*consumer.Failure, error) {
	s := &session{in: in, subscriber: subscriber}
	defer s.Close(ctx)
	f, xid, err := s.take(ctx)
	if err != nil || f == nil {
		return nil, err
	}
	if err = s.remove(ctx, f); err == nil {
		_, err = s.apply(ctx, func(ctx context.Context, tx pgx.Tx, _ []*consumer.Message) error {
			return apply(ctx, tx, *f)
		}, nil)
	}
	if err == nil {
		err = s.commitRetry(ctx, f, xid)
	}
	if err != nil {
		if stored := s.store(ctx, f, failed(f, err)); stored != nil {
			in.owed.add(owedUndo{subscriber, f.Message.ID})
			return f, stored
		}
	}
	return f, err
}

// take notes that an attempt begins at a message that is due, and locks it in a
// transaction. It returns nil when there is none.
func (s *session) take(ctx context.Context) (f *consumer.Failure, xid string, err error) {
	ctx, cancel := s.limit.Context(ctx, s.in.cfg.ClaimTimeout)
	defer cancel()
	if s.conn, err = s.in.pool.Acquire(ctx); err != nil {
		s.conn = nil
		return nil, "", s.in.noConnection(err)
	}
	ask := newTrip()
	if s.addAskRole(ask); len(ask.steps) > 0 {
		err = s.send(ctx, ask)
	}
	if err == nil {
		err = s.payOwed(ctx)
	}
	if err != nil {
		return nil, "", s.claimFailed(ctx, err)
	}
	id, err := s.note(ctx)
	if err == nil { // the note is committed once its id is known, so that it can be undone whichever reply is lost
		_, err = s.conn.Exec(ctx, s.in.sql.commit+"; "+s.in.sql.begin+"; "+s.in.failed.limit)
	}
	if err == nil {
		f, xid, err = s.scanFailure(s.conn.QueryRow(ctx, s.in.failed.lock, s.subscriber, id))
	}
	if errors.Is(err, pgx.ErrNoRows) {
		if s.rollback(ctx); s.conn == nil { // or the sweep would be rolled back
			return nil, "", s.claimFailed(ctx, errLost)
		}
		return nil, "", s.sweep(ctx)
	}
	if err == nil {
		s.savepoint = "ackafter_" + rand.Text()
		_, err = s.conn.Exec(ctx, "savepoint "+s.savepoint)
	}
	if err != nil {
		if id != "" { // the attempt is noted, and does not begin
			s.in.owed.add(owedUndo{s.subscriber, id})
		}
		return nil, "", s.claimFailed(ctx, err)
	}
	return f, xid, nil
}

// note notes, in a transaction that it leaves open, that an attempt begins at a
// message that is due, and returns its id.
func (s *session) note(ctx context.Context) (id string, err error) {
	err = s.briefly(ctx, func() error {
		return s.conn.QueryRow(ctx, s.in.failed.begin, s.subscriber, s.in.cfg.ClaimTimeout).Scan(&id)
	})
	return id, err
}

// briefly runs f in a transaction that it leaves open, and again while f waits
// for another transaction. PostgreSQL's skip locked waits for the holder of a row
// that was updated, and locked once more, just when it looked: here for another
// worker's handler, as long as that takes. The next look passes over the row.
func (s *session) briefly(ctx context.Context, f func() error) error {
	for {
		_, err := s.conn.Exec(ctx, s.in.failed.brief)
		if err == nil {
			err = f()
		}
		var pgErr *pgconn.PgError
		if !errors.As(err, &pgErr) || pgErr.Code != lockNotAvailable || ctx.Err() != nil {
			return err
		}
		if s.rollback(ctx); s.conn == nil {
			return errLost
		}
	}
}

func (s *session) scanFailure(row pgx.Row) (*consumer.Failure, string, error) {
	var (
		m            consumer.Message
		f            = consumer.Failure{Message: &m}
		keys, values [][]byte
		at           *time.Time
		xid          string
	)
	err := row.Scan(&m.ID, &f.Reason, &f.Error, &f.Attempts, &m.Type, &m.Topic, &m.Key, &m.Body,
		&keys, &values, &at, &m.Position, &f.Crashes, &xid)
	if err != nil {
		return nil, "", err
	}
	for i := range keys {
		m.Headers = append(m.Headers, consumer.Header{Key: string(keys[i]), Value: values[i]})
	}
	if at != nil {
		m.Time = *at
	}
	m.Attempt = f.Attempts + 1
	return &f, xid, nil
}

// remove removes the message, before the handler has the transaction: should SQL
// of the handler commit it, then the message goes with what is committed, and is
// not tried again.
func (s *session) remove(ctx context.Context, f *consumer.Failure) error {
	ctx, cancel := s.limit.Context(ctx, s.in.cfg.ClaimTimeout)
	defer cancel()
	tag, err := s.conn.Exec(ctx, s.in.failed.remove, s.subscriber, f.Message.ID)
	if err == nil && tag.RowsAffected() != 1 {
		return errNotRemoved
	}
	return s.storeFailed(ctx, err)
}

// commitRetry ends the transaction with the message removed, as one that was
// processed.
func (s *session) commitRetry(ctx context.Context, f *consumer.Failure, xid string) error {
	ctx, cancel := s.limit.Context(context.WithoutCancel(ctx), s.in.cfg.CommitTimeout)
	defer cancel()
	t := newTrip()
	s.addRole(t)
	t.add(s.in.failed.same, xid)
	s.addRelease(t, f)
	return s.sendCommit(ctx, t)
}

// store stores what became of a message that failed again, or that nothing is to
// be counted: in its transaction, less what the handler did, where that is still
// there.
func (s *session) store(ctx context.Context, f *consumer.Failure, d consumer.Disposition) error {
	ctx, cancel := s.limit.Context(context.WithoutCancel(ctx), s.in.cfg.ClaimTimeout)
	defer cancel()
	if s.conn != nil && !s.pg().IsClosed() {
		if _, err := s.conn.Exec(ctx, "rollback to savepoint "+s.savepoint); err != nil {
			s.rollback(ctx)
		}
	}
	if s.conn == nil || s.pg().IsClosed() {
		s.release()
		conn, err := s.in.pool.Acquire(ctx)
		if err != nil {
			return s.in.noConnection(err)
		}
		s.conn = conn
	}
	var err error
	switch d {
	case consumer.Stored:
		_, err = s.conn.Exec(ctx, s.in.failed.update, s.subscriber, f.Message.ID,
			string(f.Reason), text(f.Error), f.Attempts, retryIn(*f))
	case consumer.Discarded:
		_, err = s.conn.Exec(ctx, s.in.failed.discard, s.subscriber, f.Message.ID)
	default:
		_, err = s.conn.Exec(ctx, s.in.failed.undo, s.subscriber, f.Message.ID)
	}
	if err == nil && s.pg().TxStatus() != 'I' {
		_, err = s.conn.Exec(ctx, s.in.sql.commit)
	}
	return s.storeFailed(ctx, err)
}
