package failures

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Retry makes a message due, so that a worker tries it again at its next look
// (consumer.Config.RetryPoll). One that is due already stays so. Its attempts are
// not forgotten: when it fails again, it is scheduled by their number. One that is
// behind an earlier message of its key (consumer.Config.KeepOrder) waits for that
// one all the same.
//
// While a handler is running for the message, Retry waits for its end, since it
// may fail for what has just been repaired. The error is ErrBusy when that takes
// longer than Config.LockTimeout, and ErrNotFound when the message is not set
// aside, or no longer, as when that handler has succeeded.
func (s *Store) Retry(ctx context.Context, subscriber, id string) error {
	var q query
	q.sql = "update " + s.failed + "\nset next_attempt_at = least(next_attempt_at, now())" + q.message(subscriber, id)
	return s.change(ctx, subscriber, id, &q)
}

// change runs a statement on one message, and returns ErrNotFound when it
// changes none.
func (s *Store) change(ctx context.Context, subscriber, id string, q *query) error {
	if !storable(subscriber) || !storable(id) {
		return notFound(subscriber, id)
	}
	return s.inTx(ctx, pgx.ReadWrite, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, q.sql, q.params()...)
		if err == nil && tag.RowsAffected() == 0 {
			err = notFound(subscriber, id)
		}
		return err
	})
}

// RetryOptions say how RetryAll goes about it. The zero value does all.
type RetryOptions struct {
	// DryRun only counts, and changes nothing.
	DryRun bool

	// BatchSize is how many messages each transaction makes due. Zero means
	// 1000; more than MaxLimit is an error.
	BatchSize int

	// After is where to begin: RetryResult.Next of a run that did not come to
	// its end. Zero means with the oldest.
	After Cursor

	// Progress is called after each batch, with the result so far, from the
	// goroutine of RetryAll. Who keeps Next somewhere can go on from there
	// after a crash. Nil means that nobody is told.
	Progress func(RetryResult)
}

// RetryResult is what a RetryAll has done.
type RetryResult struct {
	// Messages is how many were made due, or would be by a run that is not
	// dry. It holds only what is known to be committed.
	Messages int64
	// Next is where to go on. It is zero when the run has come to its end, and
	// when it has done nothing.
	Next Cursor
}

// RetryAll makes due what f chooses, the oldest first, in batches that are each
// a short transaction. What is due already is left as it is and not counted; so
// is what a worker is handling, which was due, and what somebody else has
// locked: RetryAll waits for no message. What is set aside after it has begun is
// left for another run.
//
// An error, or the end of ctx, leaves the batches that were committed, and the
// result says how far they reach. Go on with its Next in RetryOptions.After, or
// just call again from the beginning, which does what is left; but a message that
// has failed once more in the meantime is then made due once more.
func (s *Store) RetryAll(ctx context.Context, f Filter, o RetryOptions) (RetryResult, error) {
	var done RetryResult
	if o.BatchSize < 0 || o.BatchSize > MaxLimit {
		return done, fmt.Errorf("failures.RetryOptions.BatchSize: must be from 1 to %d, or 0 for the default, is %d",
			MaxLimit, o.BatchSize)
	}
	if o.BatchSize == 0 {
		o.BatchSize = 1000
	}
	if o.DryRun {
		n, err := s.countIdle(ctx, f, o.After)
		return RetryResult{Messages: n}, err
	}
	done.Next = o.After
	for {
		n, next, err := s.retryBatch(ctx, f, o.BatchSize, done.Next)
		for again := 0; errors.Is(err, ErrBusy) && again < 3; again++ {
			// PostgreSQL's skip locked waits all the same for who has locked a row
			// that was updated just when it looked. The next look skips that row.
			n, next, err = s.retryBatch(ctx, f, o.BatchSize, done.Next)
		}
		if err != nil {
			return done, err
		}
		done.Messages, done.Next = done.Messages+int64(n), next
		if o.Progress != nil && n > 0 {
			o.Progress(done)
		}
		if next == "" {
			return done, nil
		}
	}
}

// idle is the condition not to be due. now() would be before what another call
// has set since this transaction began, and that message be counted by both.
// What stands behind another message becomes due when that one goes.
const idle = "(reason <> 'behind' and (next_attempt_at is null or next_attempt_at > clock_timestamp()))"

func (s *Store) countIdle(ctx context.Context, f Filter, after Cursor) (int64, error) {
	q, conditions, err := f.from(after)
	if err != nil {
		return 0, err
	}
	q.sql = "select count(*) from " + s.failed + where(append(conditions, idle))
	n, err := read(ctx, s, q, pgx.RowTo[int64])
	if err != nil {
		return 0, err
	}
	return n[0], nil
}

// retryBatch makes up to size messages due behind after. It returns where to go
// on, or zero when there is nothing more.
func (s *Store) retryBatch(ctx context.Context, f Filter, size int, after Cursor) (n int, next Cursor, err error) {
	q, conditions, err := f.from(after)
	if err != nil {
		return 0, "", err
	}
	until := "now()" // of the first transaction; the cursor keeps it
	if p, _ := after.place(); p != nil && p.Until != 0 {
		until = q.arg(time.UnixMicro(p.Until), "timestamptz")
	}
	q.sql = fmt.Sprintf(`select ctid::text as at, failed_at, subscriber_id, message_id, %[1]s as until
from %[2]s%[3]s%[4]s
limit %[5]d
for update skip locked`, until, s.failed, where(append(conditions, idle, "failed_at <= "+until)), f.order(), size)
	var found []locked
	err = s.inTx(ctx, pgx.ReadWrite, func(tx pgx.Tx) error {
		if found, err = collect(ctx, tx, q, pgx.RowToStructByPos[locked]); err != nil || len(found) == 0 {
			return err
		}
		return s.makeDue(ctx, tx, found)
	})
	if err != nil || len(found) < size {
		return len(found), "", err
	}
	last := found[len(found)-1]
	return len(found), place{At: last.FailedAt.UnixMicro(), Subscriber: last.Subscriber, ID: last.ID,
		Until: last.Until.UnixMicro()}.cursor(), nil
}

// locked is a row that a transaction of ours has locked.
type locked struct {
	CTID           string
	FailedAt       time.Time
	Subscriber, ID string
	Until          time.Time
}

// makeDue finds the rows by where they lie, which for rows that are locked does
// not change. To join them by their key would read the whole table each time.
func (s *Store) makeDue(ctx context.Context, tx pgx.Tx, rows []locked) error {
	at := make([]string, len(rows))
	for i := range rows {
		at[i] = rows[i].CTID
	}
	var q query
	q.sql = "update " + s.failed + "\nset next_attempt_at = now()\nwhere ctid = any (" + q.arg(at, "text[]") + "::tid[])"
	tag, err := tx.Exec(ctx, q.sql, q.params()...)
	if err == nil && tag.RowsAffected() != int64(len(rows)) {
		err = fmt.Errorf("of %d messages that were locked, %d could be made due: is there a trigger?", len(rows), tag.RowsAffected())
	}
	return err
}
