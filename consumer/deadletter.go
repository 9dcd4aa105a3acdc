package consumer

import (
	"context"
	"fmt"
	"io"
	"runtime/debug"
	"strconv"
	"time"
)

// DeadLetter is where messages go that are set aside for good, when they are not
// to stay in failed_messages: a dead-letter exchange of RabbitMQ, a topic of
// Kafka. The runner acknowledges such a message only after Publish has returned
// nil. No row of processed_messages is kept for it, so that it runs again when
// it is sent back from there.
//
// A crash between the publication and the acknowledgement publishes a second
// copy. When both are sent back, the inbox lets one of them take effect.
//
// A DeadLetter may also be a Validator, a Checker and an io.Closer, as a Source
// may; the runner calls Close when Run ends, after the last Publish.
type DeadLetter interface {
	// Publish adds f.Message to the dead letters, with its own headers and those
	// of f.Headers. It returns nil only once the broker has confirmed that the
	// message is stored. An error that wraps ErrRefused says that this message
	// will never be accepted. With any other the runner pauses, says in Health
	// what it waits for, and publishes again until it succeeds. Publish returns
	// when ctx ends, and is safe for concurrent use.
	//
	// f.Message.Raw is what the source made of it, or nil for a message that
	// comes from failed_messages, of which that is all there is.
	Publish(ctx context.Context, f Failure) error
}

// The headers that tell of a dead letter why it is one.
const (
	HeaderReason   = "ackafter-reason"   // the Reason
	HeaderError    = "ackafter-error"    // Failure.Error, at most about 1000 bytes of it
	HeaderAttempts = "ackafter-attempts" // Failure.Attempts, in decimal
	HeaderPosition = "ackafter-position" // Message.Position
	HeaderTime     = "ackafter-time"     // Message.Time, in RFC 3339; missing when that is zero
)

// maxHeaderErrorBytes is less than what failed_messages keeps, since brokers
// limit the size of all headers together.
const maxHeaderErrorBytes = 1000

// Headers returns what a DeadLetter adds to the message's own headers, in the
// place of those with the same names.
func (f Failure) Headers() Headers {
	h := Headers{
		{HeaderReason, []byte(f.Reason)},
		{HeaderError, []byte(shortened(f.Error, maxHeaderErrorBytes))},
		{HeaderAttempts, []byte(strconv.Itoa(f.Attempts))},
		{HeaderPosition, []byte(f.Message.Position)},
	}
	if !f.Message.Time.IsZero() {
		h = append(h, Header{HeaderTime, []byte(f.Message.Time.UTC().Format(time.RFC3339Nano))})
	}
	return h
}

// publish publishes f within a limit, and makes an error of a panic.
func (r *Runner[Tx]) publish(ctx context.Context, f Failure) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("in Config.DeadLetter: %w", &PanicError{Value: v, Stack: debug.Stack()})
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, r.cfg.AckTimeout)
	defer cancel()
	return r.cfg.DeadLetter.Publish(ctx, f)
}

// dead tells whether f goes to the dead letters.
func (r *Runner[Tx]) dead(f Failure) bool { return r.cfg.DeadLetter != nil && f.ForGood() }

// closeDeadLetter ends what the dead letters keep open.
func (r *Runner[Tx]) closeDeadLetter(ctx context.Context) {
	c, ok := r.cfg.DeadLetter.(io.Closer)
	if !ok {
		return
	}
	if err := c.Close(); err != nil {
		r.log.problem(ctx, "the dead letters could not be closed in order", err)
	}
}
