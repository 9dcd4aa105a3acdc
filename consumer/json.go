package consumer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// JSON makes a Handler of a function that takes the body decoded from JSON. A
// body that cannot be decoded into T, or is null, fails for good, since trying
// again would not help. Fields that T does not have are ignored.
//
// The function finds the rest of the message, its id say, with MessageFrom.
func JSON[Tx, T any](handle func(ctx context.Context, tx Tx, body T) error) Handler[Tx] {
	if handle == nil {
		return nil // New reports it
	}
	return HandlerFunc[Tx](func(ctx context.Context, tx Tx, m *Message) error {
		body, err := DecodeJSON[T](m)
		if err != nil {
			return err
		}
		return handle(context.WithValue(ctx, messageKey{}, m), tx, body)
	})
}

type messageKey struct{}

// MessageFrom returns the message that a function given to JSON is called for,
// from the context it got. It returns nil for any other context.
func MessageFrom(ctx context.Context) *Message {
	m, _ := ctx.Value(messageKey{}).(*Message)
	return m
}

// DecodeJSON decodes m's body into a T. Its error is marked Permanent.
func DecodeJSON[T any](m *Message) (T, error) {
	var body T
	if err := json.Unmarshal(m.Body, &body); err != nil {
		return body, Permanent(fmt.Errorf("decode the body of %d bytes as JSON into %T: %w", len(m.Body), body, err))
	}
	if string(bytes.TrimSpace(m.Body)) == "null" { // which decodes into anything, as nothing
		return body, Permanent(errors.New("decode the body as JSON: it is null"))
	}
	return body, nil
}
