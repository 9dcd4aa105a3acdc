package failures

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"
)

// Cursor is a place among all messages, ordered from the oldest to the newest.
// Zero stands before the first. It stays valid when messages come and go, the
// one that it was made from included. It is printable, needs no escaping in a
// URL, and holds that message's subscriber, id and time.
type Cursor string

// place is what a Cursor holds.
type place struct {
	At         int64  `json:"t"` // failed_at, in microseconds since 1970
	Subscriber string `json:"s"`
	ID         string `json:"m"`
	// Until is the end of a RetryAll: its messages were set aside until then,
	// in microseconds since 1970. Zero in the cursors of List.
	Until int64 `json:"u,omitempty"`
}

func (p place) time() time.Time { return time.UnixMicro(p.At) }

func (p place) cursor() Cursor {
	data, err := json.Marshal(p)
	if err != nil {
		panic(err) // numbers and strings
	}
	return Cursor(base64.RawURLEncoding.EncodeToString(data))
}

// place returns nil for the zero Cursor.
func (c Cursor) place() (*place, error) {
	if c == "" {
		return nil, nil
	}
	var p place
	data, err := base64.RawURLEncoding.DecodeString(string(c))
	if err == nil {
		err = json.Unmarshal(data, &p)
	}
	if err != nil || p.Subscriber == "" || p.ID == "" || !storable(p.Subscriber) || !storable(p.ID) {
		return nil, fmt.Errorf("%w: %.100q", ErrCursor, string(c))
	}
	return &p, nil
}
