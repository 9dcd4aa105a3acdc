package inbox

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ackafter/ackafter/consumer"
)

// Behind implements consumer.OrderInbox.
func (in *Inbox) Behind(ctx context.Context, tx pgx.Tx, subscriber string, m *consumer.Message) (behind bool, err error) {
	err = tx.QueryRow(ctx, in.order.behind, subscriber, m.Key, m.ID).Scan(&behind)
	return behind, err
}

// addRelease makes the message due that stands behind f, which is about to go.
func (s *session) addRelease(t *trip, f *consumer.Failure) {
	if len(f.Message.Key) > 0 {
		t.add(s.in.order.release, s.subscriber, f.Message.Key, f.Message.ID)
	}
}

// sweeps is when each subscriber's table was last swept.
type sweeps struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// sweepInterval is how long a message may wait for nothing: behind one that was
// deleted by hand, or that went while the later one was being set aside.
const sweepInterval = 5 * time.Second

func (s *sweeps) due(subscriber string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.last[subscriber]) < sweepInterval {
		return false
	}
	if s.last == nil {
		s.last = map[string]time.Time{}
	}
	s.last[subscriber] = time.Now()
	return true
}

// sweep makes those due that stand behind no other any more.
func (s *session) sweep(ctx context.Context) error {
	if !s.in.sweeps.due(s.subscriber) {
		return nil
	}
	_, err := s.conn.Exec(ctx, s.in.order.sweep, s.subscriber)
	return err
}

// orderStatements is the SQL on the order of messages in failed_messages.
type orderStatements struct {
	behind  string // takes (subscriber, key, id); of a new message, every row is before it
	release string // takes (subscriber, key, id), the last of the message that goes
	sweep   string // takes (subscriber)
}

func newOrderStatements(cfg Config) orderStatements {
	table := pgx.Identifier{cfg.Schema, "failed_messages"}.Sanitize()
	return orderStatements{
		behind: `select exists (select from ` + table + ` where subscriber_id = $1::text and ` + sameKey("", "$2::bytea") + `
	and (sequence < (select sequence from ` + table + ` where subscriber_id = $1::text and message_id = $3::text)) is not false)`,
		release: `update ` + table + ` set next_attempt_at = now()
where sequence = (select sequence from ` + table + `
	where subscriber_id = $1::text and ` + sameKey("", "$2::bytea") + ` and message_id <> $3::text
	order by sequence limit 1)
and subscriber_id = $1::text and ` + sameKey("", "$2::bytea") + ` and reason = 'behind' and next_attempt_at is null`,
		sweep: `update ` + table + ` f set next_attempt_at = now()
where subscriber_id = $1::text and reason = 'behind' and next_attempt_at is null and ` + first(table, "f"),
	}
}

// sameKey compares a row's key with another, through the index, which has hashes.
func sameKey(row, key string) string {
	return `sha256(` + row + `message_key) = sha256(` + key + `) and ` + row + `message_key = ` + key
}

// first is true for a row before which no other of its key stands.
func first(table, row string) string {
	return `not exists (select from ` + table + ` e where e.subscriber_id = ` + row + `.subscriber_id
	and ` + sameKey("e.", row+".message_key") + ` and e.sequence < ` + row + `.sequence)`
}
