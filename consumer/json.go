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
// A function that needs more of the message than its body is a HandlerFunc
// that calls DecodeJSON.
func JSON[Tx, T any](handle func(ctx context.Context, tx Tx, body T) error) Handler[Tx] {
	if handle == nil {
		return nil // New reports it
	}
	return HandlerFunc[Tx](func(ctx context.Context, tx Tx, m *Message) error {
		body, err := DecodeJSON[T](m)
		if err != nil {
			return err
		}
		return handle(ctx, tx, body)
	})
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
