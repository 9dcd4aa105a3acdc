package failures

import (
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ackafter/ackafter/consumer"
)

// Summary is a message that is set aside, without what can be large.
type Summary struct {
	Subscriber string `json:"subscriber"`
	// ID is the one under which the message is set aside; see consumer.Reason.
	ID     string          `json:"id"`
	Reason consumer.Reason `json:"reason"`
	// Error is what the last attempt failed with.
	Error string `json:"error"`
	// Attempts counts the attempts that failed, before the message was set
	// aside and since.
	Attempts int `json:"attempts"`
	// FailedAt is when the message was set aside, and LastFailedAt when it
	// failed last.
	FailedAt     time.Time `json:"failed_at"`
	LastFailedAt time.Time `json:"last_failed_at"`
	// NextAttempt is when a worker tries again. It is past while the message
	// is due, or being handled. Zero means never by itself.
	NextAttempt time.Time `json:"next_attempt,omitzero"`
	// Type, Topic, Time and Position are those of consumer.Message.
	Type     string    `json:"type"`
	Topic    string    `json:"topic"`
	Time     time.Time `json:"time,omitzero"`
	Position string    `json:"position"`
	// BodyBytes is the length of the body.
	BodyBytes int `json:"body_bytes"`
}

// ForGood tells whether no worker tries the message again by itself.
func (s *Summary) ForGood() bool { return s.NextAttempt.IsZero() && s.Reason != consumer.ReasonBehind }

// forGood is that condition in SQL.
const forGood = "(next_attempt_at is null and reason <> 'behind')"

// Message is a message that is set aside, whole.
type Message struct {
	Summary
	Key Data `json:"key"`
	// Headers stand in their order. A key may occur more than once.
	Headers []Header `json:"headers"`
	// Body is what the producer sent, byte for byte. Nil is a tombstone of
	// Kafka.
	Body Data `json:"body"`
}

// Header is one header of a message. Kafka allows any bytes for its key.
type Header struct {
	Key   Data `json:"key"`
	Value Data `json:"value"`
}

const (
	summaryColumns = `subscriber_id, message_id, reason, error, attempts, failed_at, last_failed_at, next_attempt_at,
	message_type, topic, message_time, position, coalesce(octet_length(body), 0)`
	messageColumns = summaryColumns + `, message_key, header_keys, header_values, body`
)

func scanSummary(row pgx.CollectableRow) (s Summary, err error) {
	err = scan(row, &s)
	return s, err
}

func scanMessage(row pgx.CollectableRow) (*Message, error) {
	var m Message
	var key, body []byte
	var keys, values [][]byte
	if err := scan(row, &m.Summary, &key, &keys, &values, &body); err != nil {
		return nil, err
	}
	m.Key, m.Body, m.Headers = key, body, []Header{}
	for i := range keys {
		m.Headers = append(m.Headers, Header{Key: keys[i], Value: values[i]})
	}
	return &m, nil
}

// scan reads summaryColumns into s, and further columns into more.
func scan(row pgx.CollectableRow, s *Summary, more ...any) error {
	var next, at *time.Time
	err := row.Scan(append([]any{&s.Subscriber, &s.ID, &s.Reason, &s.Error, &s.Attempts, &s.FailedAt, &s.LastFailedAt, &next,
		&s.Type, &s.Topic, &at, &s.Position, &s.BodyBytes}, more...)...)
	if next != nil {
		s.NextAttempt = *next
	}
	if at != nil {
		s.Time = *at
	}
	return err
}

func (s *Summary) place() place {
	return place{At: s.FailedAt.UnixMicro(), Subscriber: s.Subscriber, ID: s.ID}
}
