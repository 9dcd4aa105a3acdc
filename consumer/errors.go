package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The conditions that cost a message no attempt, unless they meet the same one
// time and again (see the package comment). An Inbox returns errors that
// wrap them; test with errors.Is. A handler may wrap them likewise, to say that
// what it depends on is away, and that the whole runner had better wait.
var (
	// ErrOutage says that the database or the broker is away or refuses to
	// work. The runner pauses, and probes until it is back.
	ErrOutage = errors.New("outage")
	// ErrContention says that another transaction was in the way: a lock
	// timeout, a deadlock, a serialization failure. The runner tries again
	// soon.
	ErrContention = errors.New("contention")
	// ErrRefused says that this very message was refused by a database or a
	// broker that works, and would be again: it is larger than what can be
	// stored, or breaks a constraint that somebody has added. Only setting
	// aside returns it (FailureInbox, DeadLetter). The runner keeps the message,
	// unacknowledged, tries again now and then, and goes on with the others.
	ErrRefused = errors.New("refused")
	// ErrOutcomeUnknown says that a commit was sent and its reply never came.
	// It is an ErrOutage, too.
	ErrOutcomeUnknown = fmt.Errorf("outcome of the commit unknown: %w", ErrOutage)
)

// ErrHandlerTimeout is the cause of a handler's context that ended at
// Config.HandlerTimeout, and is wrapped by the failure that follows. It wraps
// context.DeadlineExceeded, whatever the handler made of that.
var ErrHandlerTimeout = fmt.Errorf("handler exceeded its time limit (Config.HandlerTimeout): %w", context.DeadlineExceeded)

// ErrDrainTimeout is the cause of a handler's context that ended because a
// shutdown, or the loss of the stream, had waited for Config.DrainTimeout.
var ErrDrainTimeout = errors.New("handler was cut short by the shutdown (Config.DrainTimeout)")

// Permanent marks err so that the message is not tried again: it is set aside
// for good. It returns nil when err is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

// IsPermanent tells whether err, or an error that it wraps, was marked by
// Permanent.
func IsPermanent(err error) bool {
	var p *permanentError
	return errors.As(err, &p)
}

type permanentError struct{ err error }

func (e *permanentError) Error() string { return "permanent: " + e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// RetryAfter marks err so that the message is tried again after d rather than
// after the runner's own backoff. It is a failed attempt all the same. A d of
// zero or less means at once; with one above Config.Retry.Max the message is set
// aside until then. It returns nil when err is nil.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &retryAfterError{max(d, 0), err}
}

type retryAfterError struct {
	after time.Duration
	err   error
}

func (e *retryAfterError) Error() string { return e.err.Error() }
func (e *retryAfterError) Unwrap() error { return e.err }

// PanicError is the failure of a handler, or of another function of yours,
// that panicked.
type PanicError struct {
	Value any    // what it panicked with
	Stack []byte // the goroutine's stack at the panic
}

// Error returns the panic's value, without the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the panic's value when it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// MessageError is what Run returns when a message stops the runner, which it
// does only where it cannot be set aside. The
// message was not acknowledged, and its attempts left no trace in the
// database.
type MessageError struct {
	ID       string // Message.ID; it may be empty or invalid
	Position string // Message.Position
	Err      error
}

// Error names the message, by the first 100 characters of its id, and the
// reason.
func (e *MessageError) Error() string {
	return fmt.Sprintf("message %.100q at %s: %v (it is not acknowledged)", e.ID, e.Position, e.Err)
}

// Unwrap returns the reason.
func (e *MessageError) Unwrap() error { return e.Err }
