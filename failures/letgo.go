package failures

import (
	"context"
	"errors"
	"strings"
)

// LetGo gives a message up: it moves from failed_messages to let_go_messages,
// together with reason, which says why and must not be empty. No worker tries it
// again. Its row in processed_messages stays as if it had been processed, so that
// a redelivery is a duplicate for as long as you keep those rows.
//
// While a handler is running for the message, LetGo waits for its end. The error
// is ErrBusy when that takes longer than Config.LockTimeout, and ErrNotFound when
// the message is not set aside, or no longer, as when that handler has succeeded.
// Then nothing is changed.
func (s *Store) LetGo(ctx context.Context, subscriber, id, reason string) error {
	if strings.TrimSpace(reason) == "" {
		return errors.New("failures: LetGo needs a reason, for those who look for the message later")
	}
	if !storable(reason) {
		return errors.New("failures: LetGo: the reason is not valid UTF-8, or holds a NUL byte")
	}
	const columns = `subscriber_id, message_id, reason, error, attempts, failed_at, last_failed_at,
	message_type, topic, message_key, body, header_keys, header_values, message_time, position`
	var q query
	q.sql = "with gone as (delete from " + s.failed + q.message(subscriber, id) + "\nreturning " + columns + ")\n" +
		"insert into " + s.letGo + " (let_go_reason, " + columns + ")\n" +
		"select " + q.arg(reason, "text") + ", " + columns + " from gone"
	return s.change(ctx, subscriber, id, &q)
}
