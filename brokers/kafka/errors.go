package kafka

import (
	"errors"
	"fmt"

	"github.com/ackafter/ackafter/consumer"
)

var (
	errRunning    = errors.New("kafka: Run is running already; another member of the group needs another Source")
	errNotRunning = errors.New("kafka: the source is not running")
	errJoining    = errors.New("kafka: joining the group")
	errEnded      = errors.New("kafka: the partition was given up, and what is not committed is delivered again")
	errNoTopicID  = errors.New("the brokers tell no topic id (those before Kafka 2.8 have none), " +
		"so when the topic is deleted and made again its new messages would look like the old ones; use an id that the producer sets, or newer brokers")
	errForeign   = errors.New("kafka: the message was not delivered by this stream")
	errLeft      = errors.New("kafka: serve returned while the partition was assigned")
	errRemade    = errors.New("kafka: the topic was deleted and made again")
	errOvertaken = errors.New("kafka: the log has lost what was to be read next")
)

// finalError marks that trying again does not help.
type finalError struct{ err error }

func (e *finalError) Error() string { return e.err.Error() }
func (e *finalError) Unwrap() error { return e.err }

// outageError says what is away. It wraps consumer.ErrOutage: it may pass.
type outageError struct {
	text string
	err  error
}

func (e *outageError) Error() string   { return e.text }
func (e *outageError) Unwrap() []error { return []error{e.err, consumer.ErrOutage} }

func outage(err error, format string, args ...any) error {
	return &outageError{fmt.Sprintf("kafka: "+format, args...), err}
}

// unreachableError marks that not even a TCP connection came about.
type unreachableError struct{ err error }

func (e *unreachableError) Error() string { return e.err.Error() }
func (e *unreachableError) Unwrap() error { return e.err }
