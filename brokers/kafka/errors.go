package kafka

import (
	"errors"
	"fmt"

	"github.com/ackafter/ackafter/consumer"
)

// The errors that Run may return and a caller may want to tell from others with
// errors.Is. What a broker has answered is a kafka.Error of kafka-go, such as
// kafka.UnknownTopicOrPartition; what may pass wraps consumer.ErrOutage.
var (
	// ErrOffsetOutOfRange says that what the group has committed is of no use
	// for the log as it is, and that Config.OutOfRange is OutOfRangeFail.
	ErrOffsetOutOfRange = errors.New("offset out of range")
	// ErrUnreadable says that a message, or a batch of them, is damaged, or
	// of a kind that this package does not know. It is not skipped: set the
	// group's offset beyond it to do that.
	ErrUnreadable = errors.New("cannot be read")
	// ErrRunning says that Run is running already.
	ErrRunning = errors.New("kafka: Run is running already; another member of the group needs another Source")
)

// unreadable names the partition.
func unreadable(partition string, err error) error {
	return fmt.Errorf("kafka: %s %w: %w; nothing is skipped: to go on behind it, set the group's offset (kafka-consumer-groups --reset-offsets)",
		partition, ErrUnreadable, err)
}

var (
	errZero       = errors.New("kafka: the Source was not made by New or Group")
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
