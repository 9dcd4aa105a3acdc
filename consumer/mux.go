package consumer

import (
	"context"
	"errors"
	"fmt"
)

// Mux is a Handler that chooses among others by Message.Type. It must not be
// changed once a runner has it.
type Mux[Tx any] struct {
	// Handlers holds the handler of each type. The empty type is one like any
	// other.
	Handlers map[string]Handler[Tx]
	// Unknown says what becomes of a message of any other type. It has no
	// default: whether a new type of message may be skipped is for you to say.
	Unknown UnknownType
}

// UnknownType is what a Mux does with a message whose type it does not know.
type UnknownType uint8

const (
	// FailUnknown fails the message for good, with ErrUnknownType.
	FailUnknown UnknownType = iota + 1
	// SkipUnknown counts the message as processed, with no effect. It will
	// not run if its type is handled one day.
	SkipUnknown
)

// ErrUnknownType is wrapped by the failure of a message whose type a Mux does
// not know.
var ErrUnknownType = errors.New("no handler for messages of this type")

// Handle calls the handler of m's type.
func (x Mux[Tx]) Handle(ctx context.Context, tx Tx, m *Message) error {
	h, ok := x.Handlers[m.Type]
	switch {
	case ok:
		return h.Handle(ctx, tx, m)
	case x.Unknown == SkipUnknown:
		return nil
	}
	return Permanent(fmt.Errorf("%w: %q", ErrUnknownType, m.Type))
}

// Validate returns what New reports about x.
func (x Mux[Tx]) Validate() error {
	var errs []error
	if len(x.Handlers) == 0 {
		errs = append(errs, errors.New("Mux.Handlers is empty"))
	}
	for typ, h := range x.Handlers {
		if isNil(h) {
			errs = append(errs, fmt.Errorf("Mux.Handlers[%q] is nil", typ))
		}
	}
	if x.Unknown != FailUnknown && x.Unknown != SkipUnknown {
		errs = append(errs, errors.New("Mux.Unknown: choose FailUnknown or SkipUnknown"))
	}
	return errors.Join(errs...)
}
