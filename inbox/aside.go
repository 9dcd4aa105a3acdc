package inbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ackafter/ackafter/consumer"
)

// SetAside implements consumer.FailureInbox.
func (in *Inbox) SetAside(ctx context.Context, subscriber string, f consumer.Failure) (consumer.Verdict, error) {
	if err := check(subscriber, []*consumer.Message{f.Message}); err != nil {
		return 0, err
	}
	if err := storableSize(f.Message); err != nil {
		return 0, err
	}
	s := &session{in: in, subscriber: subscriber}
	defer s.Close(ctx)
	c := newClaim([]*consumer.Message{f.Message})
	if err := s.claim(ctx, c); err != nil {
		return 0, err
	}
	if c.mine[0] {
		if err := s.insertFailure(ctx, f); err != nil {
			return 0, err
		}
	}
	if err := s.finish(ctx, c, false); err != nil {
		if !errors.Is(err, consumer.ErrOutage) && !errors.Is(err, consumer.ErrContention) { // a deferred constraint
			err = fmt.Errorf("%w: %w", consumer.ErrRefused, err)
		}
		return 0, err
	}
	if !c.mine[0] {
		return c.verdicts()[0], nil
	}
	return consumer.SetAside, nil
}

func (s *session) insertFailure(ctx context.Context, f consumer.Failure) error {
	ctx, cancel := s.limit.Context(ctx, s.in.cfg.ClaimTimeout)
	defer cancel()
	m := f.Message
	keys, values := make([][]byte, len(m.Headers)), make([][]byte, len(m.Headers))
	for i, h := range m.Headers {
		keys[i], values[i] = []byte(h.Key), h.Value
	}
	tag, err := s.conn.Exec(ctx, s.in.failed.insert, s.subscriber, m.ID, string(f.Reason), text(f.Error), f.Attempts,
		retryIn(f), text(m.Type), text(m.Topic), m.Key, m.Body, keys, values, messageTime(m), text(m.Position))
	if err == nil && tag.RowsAffected() != 1 {
		return fmt.Errorf("inbox: set aside: %w: an insert into failed_messages inserts nothing: is there a trigger?", consumer.ErrRefused)
	}
	return s.storeFailed(ctx, err)
}

// maxStoredBytes is how much a message that is set aside may have, headers
// included. A bytea holds 1 GB, and so does a message of the protocol; half of it
// can still be read as text, by psql say, or by pgx behind PgBouncer.
const maxStoredBytes = 500 << 20

// storableSize returns an error for a message that is larger.
func storableSize(m *consumer.Message) error {
	size := len(m.Key) + len(m.Body)
	for _, h := range m.Headers {
		size += len(h.Key) + len(h.Value)
	}
	if size > maxStoredBytes {
		return fmt.Errorf("inbox: set aside: %w: the message has %d bytes, and PostgreSQL takes %d", consumer.ErrRefused, size, maxStoredBytes)
	}
	return nil
}

// storeFailed explains why a message could not be stored in failed_messages.
func (s *session) storeFailed(ctx context.Context, err error) error {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && isRefusal(pgErr) {
		return fmt.Errorf("inbox: set aside: %w: %w", consumer.ErrRefused, err)
	}
	return s.claimFailed(ctx, err)
}

// isRefusal tells whether the server works, and does not want the values: data
// exceptions, broken constraints, exceeded program limits, and what a trigger
// raises.
func isRefusal(err *pgconn.PgError) bool {
	switch err.Code[:min(2, len(err.Code))] {
	case "22", "23", "54", "P0":
		return true
	}
	return false
}

// text makes s fit for a column: what a broker allows in a name, and errors
// quote, PostgreSQL's text may not hold.
func text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// retryIn is null while nothing is to try the message again.
func retryIn(f consumer.Failure) *time.Duration {
	if f.RetryIn < 0 {
		return nil
	}
	return &f.RetryIn
}

// messageTime is null for a time that no timestamptz holds: producers choose
// freely, and a message must not be refused for it. pgx would let the farthest
// ones wrap around.
func messageTime(m *consumer.Message) *time.Time {
	if m.Time.IsZero() || m.Time.Year() < firstYear || m.Time.Year() > lastYear {
		return nil
	}
	return &m.Time
}

// The years that PostgreSQL's timestamptz holds whole, in any time zone.
const (
	firstYear = -4712 // 4713 BC
	lastYear  = 294275
)

// failureStatements is the SQL on failed_messages. Failures are few, so that
// nothing here is about speed.
type failureStatements struct {
	insert     string
	brief      string // begins a transaction for begin, or undoFree, that waits for nobody
	begin      string // takes (subscriber, interval), notes an attempt at a message that is due, and returns its id
	lock       string // takes (subscriber, id), and may have to wait for what looks at the same row for a moment
	limit      string // limits that wait, and the handler's
	update     string // takes (subscriber, id, reason, error, attempts, interval)
	undo       string // takes (subscriber, id), and takes back what begin has noted
	undoFree   string // is undo, for a message that nobody has locked
	unfinished string // takes (subscriber, id), and tells whether there is something to undo
	remove     string // takes (subscriber, id)
	discard    string // takes (subscriber, id), and removes the row of processed_messages with it
	same       string // takes the transaction's id from lock, and errs unless it is that one
}

// brief is long enough for what waits for no handler.
const brief = 100 * time.Millisecond

func newFailureStatements(cfg Config) failureStatements {
	table := pgx.Identifier{cfg.Schema, "failed_messages"}.Sanitize()
	processed := pgx.Identifier{cfg.Schema, "processed_messages"}.Sanitize()
	return failureStatements{
		insert: `insert into ` + table + ` (subscriber_id, message_id, reason, error, attempts, next_attempt_at,
	message_type, topic, message_key, body, header_keys, header_values, message_time, position)
values ($1::text, $2::text, $3::text, $4::text, $5::int, now() + $6::interval,
	$7::text, $8::text, $9::bytea, $10::bytea, $11::bytea[], $12::bytea[], $13::timestamptz, $14::text)`,
		brief: fmt.Sprintf("begin isolation level read committed read write; set local lock_timeout = %d", brief.Milliseconds()),
		begin: `update ` + table + `
set unfinished = unfinished + 1, next_attempt_at = now() + $2::interval
where (subscriber_id, message_id) = (select subscriber_id, message_id from ` + table + ` f
	where subscriber_id = $1::text and next_attempt_at <= now() and (reason <> 'behind' or ` + first(table, "f") + `)
	order by next_attempt_at
	limit 1
	for update skip locked)
returning message_id`,
		lock: `select message_id, reason, error, attempts, message_type, topic, message_key, body,
	header_keys, header_values, message_time, position, unfinished - 1, pg_current_xact_id()::text
from ` + table + `
where subscriber_id = $1::text and message_id = $2::text
for update`,
		limit: fmt.Sprintf("set local lock_timeout = %d", max(1, cfg.LockTimeout.Milliseconds())),
		update: `update ` + table + `
set reason = $3::text, error = $4::text, attempts = $5::int, unfinished = 0, next_attempt_at = now() + $6::interval, last_failed_at = now()
where subscriber_id = $1::text and message_id = $2::text`,
		undo: `update ` + table + `
set unfinished = unfinished - 1, next_attempt_at = now()
where subscriber_id = $1::text and message_id = $2::text and unfinished > 0`,
		undoFree: `update ` + table + `
set unfinished = unfinished - 1, next_attempt_at = now()
where (subscriber_id, message_id) = (select subscriber_id, message_id from ` + table + `
	where subscriber_id = $1::text and message_id = $2::text and unfinished > 0
	for update skip locked)`,
		unfinished: `select exists (select from ` + table + `
	where subscriber_id = $1::text and message_id = $2::text and unfinished > 0)`,
		remove: `delete from ` + table + ` where subscriber_id = $1::text and message_id = $2::text`,
		discard: `with gone as (delete from ` + table + ` where subscriber_id = $1::text and message_id = $2::text
	returning subscriber_id, message_id)
delete from ` + processed + ` where (subscriber_id, message_id) in (select subscriber_id, message_id from gone)`,
		same: `select (case when pg_current_xact_id_if_assigned()::text is not distinct from $1::text
	then '0' else '` + endedBySQL + `' end)::int`,
	}
}
