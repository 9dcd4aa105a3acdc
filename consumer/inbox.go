package consumer

import "context"

// Inbox remembers what each subscriber has processed. *inbox.Inbox is one for
// PostgreSQL, whose Tx is pgx.Tx. An Inbox may have more to offer: see
// SessionInbox, Validator, Checker and TransactionLimiter.
type Inbox[Tx any] interface {
	// Process opens one transaction, claims every message of ms in it, calls
	// apply once with those that are new, in the order of ms, and commits. It
	// does not call apply when none is new. The verdicts say what became of
	// each message, in the order of ms; they are returned only once the
	// commit is known to have succeeded, or when there was nothing to commit.
	//
	// Of two calls with one id, at most one commits; the other waits for it, or
	// returns ErrContention. An id that stands twice in ms is new once, and the
	// second a duplicate. Hashes are compared only where neither is empty, and a
	// mismatch does not keep the other messages from being processed. tx must
	// not let the handler end the transaction.
	//
	// With an error, nothing that apply did through tx is kept, except under
	// ErrOutcomeUnknown, where nobody knows: processing the same messages
	// again tells. The error wraps ErrOutage when the database was away,
	// ErrContention when another transaction was in the way; any other error
	// is apply's own, or says what apply did wrong to tx.
	//
	// Every message has an ID that CheckID accepts. apply gets a context that
	// ends with ctx, and may panic. ctx does not interrupt a commit that has
	// begun. Process is safe for concurrent use.
	Process(ctx context.Context, subscriber string, ms []*Message,
		apply func(ctx context.Context, tx Tx, fresh []*Message) error) ([]Verdict, error)
}

// SessionInbox is what an Inbox implements whose workers gain from keeping a
// connection for as long as they have work. The runner then opens one Session
// per worker at a time, instead of calling Process of the Inbox. So a type that
// embeds such an inbox, to do something around its Process, has to wrap Session
// as well.
type SessionInbox[Tx any] interface {
	// Session returns a session that holds nothing yet.
	Session(subscriber string) Session[Tx]
}

// Session processes one batch of messages after the other. It is used by one
// goroutine.
type Session[Tx any] interface {
	// Process is like that of Inbox. When the transaction is about to end, it
	// calls next, if that is not nil, and may claim the messages that next
	// returns in the same round trip. They must then be the ms of the next
	// call of Process, or of none. Whatever becomes of them is reported by
	// that call.
	Process(ctx context.Context, ms []*Message,
		apply func(ctx context.Context, tx Tx, fresh []*Message) error,
		next func() []*Message) ([]Verdict, error)
	// Close gives back what the session holds: a claim that was made for next
	// leaves no trace. The session may be used again.
	Close(ctx context.Context)
}

// openSession returns a session on any inbox.
func openSession[Tx any](inbox Inbox[Tx], subscriber string) Session[Tx] {
	if s, ok := inbox.(SessionInbox[Tx]); ok {
		return s.Session(subscriber)
	}
	return plainSession[Tx]{inbox, subscriber}
}

// plainSession is a session on an inbox that has none.
type plainSession[Tx any] struct {
	inbox      Inbox[Tx]
	subscriber string
}

func (s plainSession[Tx]) Process(ctx context.Context, ms []*Message,
	apply func(ctx context.Context, tx Tx, fresh []*Message) error, _ func() []*Message) ([]Verdict, error) {
	return s.inbox.Process(ctx, s.subscriber, ms, apply)
}

func (plainSession[Tx]) Close(context.Context) {}

// TransactionLimiter is what an Inbox implements to say how many transactions
// it can keep open at once, for example because its pool has so many
// connections. The runner opens no more than that.
type TransactionLimiter interface {
	MaxTransactions() int
}

// Verdict is what became of a message in the inbox.
type Verdict uint8

const (
	// Processed says that the message was new and that its effects are
	// committed.
	Processed Verdict = iota + 1
	// Duplicate says that the message was processed before, and that nothing
	// was done.
	Duplicate
	// Mismatch says that another message was processed under this id: the
	// hashes differ. Nothing was done.
	Mismatch
	// SetAside says that the message failed and is stored, with its row, to be
	// tried again later or to be decided about; see FailureInbox.
	SetAside
)

// String returns the verdict's name in lower case.
func (v Verdict) String() string {
	switch v {
	case Processed:
		return "processed"
	case Duplicate:
		return "duplicate"
	case Mismatch:
		return "mismatch"
	case SetAside:
		return "set aside"
	}
	return "no verdict"
}
