package consumer

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// IDFunc tells the identity of a message within its subscriber. An error means
// that the message has none; it is set aside as unidentified then.
type IDFunc func(*Message) (string, error)

// MaxIDBytes is how long an id may be, in bytes.
const MaxIDBytes = 512

// ErrNoID is wrapped by the error of a message that has no usable id.
var ErrNoID = errors.New("message has no usable id")

// CheckID returns an error that wraps ErrNoID unless id is valid UTF-8
// without NUL, of 1 to MaxIDBytes bytes. PostgreSQL cannot store the others,
// and the empty id would make a duplicate of every later message without one.
func CheckID(id string) error {
	switch {
	case id == "":
		return fmt.Errorf("%w: it is empty; let the producer set one, or choose another Config.MessageID", ErrNoID)
	case len(id) > MaxIDBytes:
		return fmt.Errorf("%w: it has %d bytes, more than %d", ErrNoID, len(id), MaxIDBytes)
	case !utf8.ValidString(id):
		return fmt.Errorf("%w: it is not valid UTF-8", ErrNoID)
	case strings.IndexByte(id, 0) >= 0:
		return fmt.Errorf("%w: it holds a NUL byte", ErrNoID)
	}
	return nil
}

// BrokerID is the id that the broker's own property carries: message-id in
// AMQP. Kafka has no such property.
func BrokerID(m *Message) (string, error) {
	return m.ID, nil
}

// HeaderID takes the id from the first of the named headers that the message
// has: HeaderID("message-id"), or HeaderID("id") for Debezium's outbox.
func HeaderID(names ...string) IDFunc {
	return func(m *Message) (string, error) {
		for _, name := range names {
			if v, ok := m.Headers.Lookup(name); ok {
				return string(v), nil
			}
		}
		return "", fmt.Errorf("%w: it has none of the headers %q", ErrNoID, names)
	}
}

// CloudEventID takes the id of a CloudEvent in binary mode, from the headers
// ce_id (Kafka), ce-id (HTTP), cloudEvents:id or cloudEvents_id (AMQP). The
// CloudEvents specification makes ids unique only together with their source,
// which scopes the id as in ScopedID; an event without one has the empty source.
func CloudEventID(m *Message) (string, error) {
	for _, prefix := range [...]string{"ce_", "ce-", "cloudEvents:", "cloudEvents_"} {
		id, ok := m.Headers.Lookup(prefix + "id")
		if !ok {
			continue
		}
		if len(id) == 0 {
			return "", fmt.Errorf("%w: its header %sid is empty", ErrNoID, prefix)
		}
		return scoped(m.Headers.Get(prefix+"source"), string(id)), nil
	}
	return "", fmt.Errorf("%w: it has none of the headers ce_id, ce-id, cloudEvents:id, cloudEvents_id", ErrNoID)
}

// LogPositioner may be implemented by Message.Raw.
type LogPositioner interface {
	// LogPosition returns the message's place in its log, in a form that stays
	// unique when the log is deleted and another of the same name is made. That
	// is more than Message.Position promises. An error says why there is none,
	// and what to do instead.
	LogPosition() (string, error)
}

// PositionID takes a message's place in its log as its id: what LogPosition
// returns when Message.Raw is a LogPositioner, such as
// "orders~Jx0qDa3vTRyI3dh3xqOBlQ/3@1842" for Kafka, else Message.Position. It
// catches what the broker delivers twice, and nothing that the producer sends
// twice. A log without a LogPositioner repeats its places when it begins anew: a
// memory broker's does with each process. RabbitMQ's queues have no places, only
// deliveries, whose number changes with each redelivery; there PositionID is an
// error, as it is for Kafka brokers that tell no topic ids.
func PositionID(m *Message) (string, error) {
	if p, ok := m.Raw.(LogPositioner); ok {
		at, err := p.LogPosition()
		if err != nil {
			return "", fmt.Errorf("%w: its position %q does not stay unique: %w", ErrNoID, m.Position, err)
		}
		return at, nil
	}
	at := strings.LastIndexByte(m.Position, '@')
	if at > 0 {
		if _, err := strconv.ParseUint(m.Position[at+1:], 10, 64); err == nil {
			return m.Position, nil
		}
	}
	return "", fmt.Errorf("%w: its position %q is a delivery and not a place in a log, so that a redelivery has another; "+
		"use an id that the producer sets", ErrNoID, m.Position)
}

// FirstID takes the id of the first of fs that finds one. An id that is found and
// cannot be used is an error: to go on would give one event two identities.
func FirstID(fs ...IDFunc) IDFunc {
	return func(m *Message) (string, error) {
		var errs []error
		for _, f := range fs {
			id, err := f(m)
			switch {
			case err != nil:
				errs = append(errs, err)
			case id == "":
				errs = append(errs, CheckID(id))
			default:
				return id, nil
			}
		}
		return "", errors.Join(errs...)
	}
}

// ScopedID makes ids that are unique only within a scope, such as a tenant,
// unique within the subscriber. Two scopes never share an id, whatever bytes
// the scope and the id hold.
func ScopedID(scope, id IDFunc) IDFunc {
	return func(m *Message) (string, error) {
		s, err := scope(m)
		if err != nil {
			return "", fmt.Errorf("its scope: %w", err)
		}
		v, err := id(m)
		if err != nil {
			return "", err
		}
		if v == "" { // the prefix would hide that there is none
			return "", CheckID(v)
		}
		return scoped(s, v), nil
	}
}

// scoped joins scope and id so that no other pair gives the same string: the
// length says where the scope ends.
func scoped(scope, id string) string {
	return strconv.Itoa(len(scope)) + ":" + scope + "/" + id
}
