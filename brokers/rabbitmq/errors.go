package rabbitmq

import (
	"errors"
	"fmt"

	"github.com/ackafter/ackafter/consumer"
)

var (
	errRunning     = errors.New("rabbitmq: Run is running already; another consumer of the queue needs another Source")
	errNotRunning  = errors.New("rabbitmq: the source is not running")
	errConnecting  = errors.New("rabbitmq: the first connection is under way")
	errEnded       = errors.New("rabbitmq: the stream has ended, and its messages are delivered again")
	errForeign     = errors.New("rabbitmq: the message was not delivered by this stream")
	errDialTimeout = errors.New("no connection within Config.DialTimeout")
	errCancelled   = errors.New("rabbitmq: the broker has cancelled the consumer: the queue was deleted, or its node is gone")
	errClosed      = errors.New("rabbitmq: the channel was closed")
	errLeft        = errors.New("rabbitmq: serve returned while the stream was alive")
)

// outageError says what is away. It wraps consumer.ErrOutage: it may pass.
type outageError struct {
	text string
	err  error
}

func (e *outageError) Error() string   { return e.text }
func (e *outageError) Unwrap() []error { return []error{e.err, consumer.ErrOutage} }

func outage(err error, format string, args ...any) error {
	return &outageError{fmt.Sprintf("rabbitmq: "+format, args...), err}
}

// unreachableError marks that not even a TCP connection came about.
type unreachableError struct{ err error }

func (e *unreachableError) Error() string { return e.err.Error() }
func (e *unreachableError) Unwrap() error { return e.err }

// refusedError marks a login that the broker answered by closing the socket.
// A broker that goes down at this moment looks the same.
type refusedError struct{ text string }

func (e *refusedError) Error() string { return e.text }

// consumeError marks a refused subscription, after everything else was
// allowed.
type consumeError struct{ err error }

func (e *consumeError) Error() string { return e.err.Error() }
func (e *consumeError) Unwrap() error { return e.err }
