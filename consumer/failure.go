package consumer

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"time"
)

// Reason says why a message was set aside.
type Reason string

const (
	// ReasonFailed says that the handler failed at every attempt in place.
	ReasonFailed Reason = "failed"
	// ReasonPermanent says that the handler's error was marked Permanent, as
	// that of a body which cannot be decoded is.
	ReasonPermanent Reason = "permanent"
	// ReasonMismatch says that another message was processed under the id. It
	// is set aside under an id of its own: the id, "#" and its hash.
	ReasonMismatch Reason = "mismatch"
	// ReasonLate says that the message is older than Config.Horizon, and that
	// nobody knows any more whether it was processed.
	ReasonLate Reason = "late"
	// ReasonBehind says that nothing is wrong with the message, but that an
	// earlier one of its key is set aside (Config.KeepOrder). It runs when that
	// one has succeeded, or was let go.
	ReasonBehind Reason = "behind"
	// ReasonCrash says that attempts at the message have ended their process.
	ReasonCrash Reason = "crash"
	// ReasonTooLarge says that the body is larger than Config.MaxBody. The
	// message was not attempted.
	ReasonTooLarge Reason = "too_large"
	// ReasonUnidentified says that the message has no usable id. It is set
	// aside under an id that begins with "unidentified:".
	ReasonUnidentified Reason = "unidentified"
)

// Failure is a message that is set aside, and why.
type Failure struct {
	// Message is the message as it was delivered. Its ID is the one under which
	// it is set aside. Raw is nil when it comes from failed_messages.
	Message *Message
	Reason  Reason
	// Error is what the last attempt failed with.
	Error string
	// Attempts counts the attempts that failed, in place and later.
	Attempts int
	// Crashes counts the attempts from failed_messages that have ended their
	// process, since the last one that has not.
	Crashes int
	// RetryIn is the time until the next attempt. It is negative when there is
	// none, until somebody decides, or the message is behind no other any more.
	RetryIn time.Duration
}

// ForGood tells whether nothing tries the message again by itself.
func (f Failure) ForGood() bool { return f.RetryIn < 0 && f.Reason != ReasonBehind }

const forGood time.Duration = -1

// FailureInbox is what an Inbox implements that can set messages aside. With an
// inbox that cannot, the runner tries a failed message again in place for ever,
// and stops at one that trying again does not help.
type FailureInbox[Tx any] interface {
	// SetAside stores f and marks its message as processed, in one transaction,
	// so that a redelivery is a duplicate. It returns SetAside once that is
	// committed. When the message was processed before it stores nothing and
	// returns Duplicate, or Mismatch when that was another message. Errors are
	// those of Process, and ErrRefused for a message that cannot be stored.
	SetAside(ctx context.Context, subscriber string, f Failure) (Verdict, error)

	// RetryDue takes one message whose next attempt is due and which no other
	// call has taken, here or in another process, runs apply, and removes it
	// from those that are set aside, in one transaction. It returns nil when
	// nothing is due.
	//
	// When apply fails, nothing that it did through tx is kept. failed gets the
	// error that Process would have returned; it may change Reason, Error,
	// Attempts and RetryIn of f, and tells what is to become of the message. The
	// message stays taken until that is committed. RetryDue returns that error,
	// or one that wraps ErrOutage, ErrContention or ErrRefused and not that
	// error when it could not be stored.
	RetryDue(ctx context.Context, subscriber string, apply func(ctx context.Context, tx Tx, f Failure) error,
		failed func(f *Failure, err error) Disposition) (*Failure, error)
}

// Disposition is what RetryDue does with a message whose attempt has failed.
type Disposition uint8

const (
	// Undone leaves the message as if the attempt had not been, and due at once.
	Undone Disposition = iota
	// Stored stores what failed has changed.
	Stored
	// Discarded removes the message, together with its row in
	// processed_messages, in one transaction: it is kept elsewhere, and is new
	// again when it comes back from there; see DeadLetter.
	Discarded
)

// unidentified gives a message an id of its own that has none: its place in the
// log where it has one, by which a redelivery is a duplicate; else one that
// occurs once, since two messages may have one delivery number.
func unidentified(m *Message) string {
	const prefix = "unidentified:"
	if id, err := PositionID(m); err == nil && CheckID(prefix+id) == nil {
		return prefix + id
	}
	return prefix + rand.Text()
}

// mismatched returns the id under which a message is set aside whose own
// belongs to another.
func mismatched(m *Message) string {
	suffix := "#" + hex.EncodeToString(m.Hash)
	if len(m.ID)+len(suffix) <= MaxIDBytes {
		return m.ID + suffix
	}
	sum := sha256.Sum256([]byte(m.ID))
	return hex.EncodeToString(sum[:]) + suffix
}
