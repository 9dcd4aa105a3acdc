package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"
)

// Config configures a Runner. Subscriber, Source, Inbox, and Handler or Batch,
// are required; every other field has a default that is safe.
type Config[Tx any] struct {
	// Subscriber names the subscription in processed_messages: a message is
	// processed once per subscriber. All that runs under one name shares one
	// set of ids, so two handlers that do different things need two names, and
	// so do two queues whose ids overlap. Renaming it forgets the past, and all
	// that the broker still delivers is processed again. At most 255 bytes.
	Subscriber string

	// Source is where the messages come from.
	Source Source

	// Inbox is where their effects and the proof of them go.
	Inbox Inbox[Tx]

	// Handler applies one message. Exactly one of Handler and Batch is set.
	Handler Handler[Tx]

	// Batch applies several messages at once.
	Batch BatchHandler[Tx]

	// Middleware wraps Handler; the first is the outermost. It cannot wrap
	// Batch. Nil means none.
	Middleware []Middleware[Tx]

	// MessageID tells a message's identity. The same id delivered again is a
	// duplicate, so it must come from the producer and be the same in each of
	// its retries. Nil means BrokerID, the broker's own property.
	// docs/message-ids.md says what makes a good one.
	MessageID IDFunc

	// Hash chooses what of a message must be equal in each of its deliveries;
	// the runner hashes it. A message that differs from the one processed
	// under its id is a Mismatch rather than a duplicate. Nil means HashBody;
	// HashNothing compares nothing, for producers which stamp a new time into
	// each retry. A function that returns nil compares nothing either.
	Hash func(*Message) []byte

	// Workers is how many messages of one stream are handled at once. Those
	// with one key are handled one after the other all the same. Zero means 1.
	Workers int

	// MaxBatch is how many messages a worker may handle in one transaction, which
	// is called group commit. It takes those that are already there, and never
	// waits for more, so a higher number costs an idle system nothing. Each
	// message still takes effect once. But a batch that fails is rolled back
	// and handled again in smaller ones, down to single messages, before
	// anything counts as an attempt: what a handler does outside its
	// transaction is repeated then. HandlerTimeout limits a whole batch, and
	// one that exceeds it is handled in smaller ones, too. Zero means 1 with
	// Handler, and 100 with Batch.
	MaxBatch int

	// MaxTransactions is how many transactions may be open at once, over all
	// streams of this runner. Zero means as many as the inbox can carry (for
	// PostgreSQL one less than the pool's size).
	MaxTransactions int

	// MaxBody is how large a body may be, in bytes. A message with a larger one
	// is not attempted, but set aside for good as too_large, whole. By then it is
	// in memory: what the broker accepts is the limit for that. Zero means that
	// there is no limit.
	MaxBody int

	// Buffer is how many messages of one stream may be with this runner,
	// delivered and not yet settled. It bounds memory. Those that wait for
	// their next attempt, or behind one with their key, count: when they fill
	// it, the stream stands still. Zero means 256, and at least four times what
	// the workers handle at once, or batches would not be filled: each worker has
	// one in its hands, and has claimed the next.
	Buffer int

	// HandlerTimeout limits one attempt of the handler. A handler without a
	// limit could keep its stream for ever, so there is no way to have none.
	// Zero means 30 s.
	HandlerTimeout time.Duration

	// AckTimeout limits one acknowledgement, one publication to DeadLetter, and
	// one call of OnSetAside. Zero means 10 s.
	AckTimeout time.Duration

	// DrainTimeout is how long handlers in flight may go on once the runner
	// stops or their stream is lost, before their context ends. Together with
	// AbandonTimeout, and what the source needs to close, it has to fit into the
	// time that whoever stops the process gives it (Kubernetes: 30 s). Zero
	// means 15 s.
	DrainTimeout time.Duration

	// AbandonTimeout is how much longer Run then waits for a handler that
	// ignores its context, and for commits that are under way, before it
	// leaves the goroutine behind and returns an error that says so. Zero
	// means 10 s.
	AbandonTimeout time.Duration

	// StartTimeout is how long database and broker may be away when Run
	// starts. Once started, no outage ends Run. Zero means 30 s.
	StartTimeout time.Duration

	// Attempts is how many attempts a message gets in place, one soon after the
	// other, before it is set aside: stored with the database's other tables,
	// and acknowledged. Until then the later messages of its key wait. With an
	// inbox that is no FailureInbox there is no end to the attempts in place.
	// Zero means 3.
	Attempts int

	// Retry is the wait between the attempts in place. A RetryAfter that is
	// longer than its Max sets the message aside at once. Zero means from
	// 100 ms to 30 s.
	Retry Backoff

	// RetryLater are the waits before the attempts that follow, less a random
	// part of up to a tenth; they need no broker, and outlive the process. When
	// the last of them has failed the message is set aside for good: somebody
	// has to decide. Nil means 1 minute, 10 minutes, 1 hour and 6 hours; empty
	// means none.
	RetryLater []time.Duration

	// CrashLimit is how many attempts in a row may end their process, or be cut
	// short with it, before a message is set aside for good. Those at a message
	// that was not delivered before do not count, since nobody notes them. It is
	// higher than Attempts because whoever kills the process, by a power cut or
	// for its memory, may hit a message that is innocent. Zero means 5.
	CrashLimit int

	// RetryPoll is how often the runner looks for messages whose next attempt
	// is due. Zero means 1 s.
	RetryPoll time.Duration

	// KeepOrder keeps the order of the messages with one key when one of them is
	// set aside: the later ones are set aside behind it, unattempted, and run in
	// their order once it has succeeded or was let go. It costs a query for each
	// message with a key. False means that the later ones go on.
	KeepOrder bool

	// Horizon is how old a message may be, by its Time, for its row to be
	// certainly still there if it was processed. One that is older and has no
	// row is set aside as late instead of being applied, perhaps for the second
	// time. Set it to less than what is kept of processed_messages, as soon as
	// anything is deleted there. A message without a Time is never late. Zero
	// means that there is no horizon.
	Horizon time.Duration

	// Classify sees each error of the handler, nil too, and returns what the
	// runner is to take it for: the same, or one marked by Permanent or
	// RetryAfter, or nil for success. Nil means that errors stay what they are.
	Classify func(error) error

	// DeadLetter gets the messages that are set aside for good, in place of
	// failed_messages; those that are to be tried later are there until then. With
	// an empty RetryLater nothing is ever written there or read from there. It
	// excludes KeepOrder, since a dead letter says nothing of those behind it.
	// The runner closes it at the end of Run when it is an io.Closer. Nil means
	// failed_messages.
	DeadLetter DeadLetter

	// OnSetAside is called after a message was set aside for good and
	// acknowledged. A crash may come in between: it is for an alert, and
	// failed_messages is the truth. It occupies a worker, but no transaction;
	// its context ends after AckTimeout, and a call that ignores that occupies
	// the worker for as long as it takes. A panic is logged. It must be safe for
	// concurrent use. Nil means that only the log tells.
	OnSetAside func(context.Context, Failure)

	// Probe is the wait between two looks at a database that is away, and between
	// two tries to publish a dead letter. Zero means from 100 ms to 5 s.
	Probe Backoff

	// Logger gets one line for each problem, and none above the debug level
	// for a healthy message. Attributes are named by OpenTelemetry's semantic
	// conventions for messaging. Nil means slog.Default().
	Logger *slog.Logger
}

// defaultMaxBatch is past what a larger batch gains.
const defaultMaxBatch = 100

// maxSubscriberBytes is what the column subscriber_id takes.
const maxSubscriberBytes = 255

// withDefaults returns c with every zero replaced by what the field's comment
// says. It does not judge.
func (c Config[Tx]) withDefaults() Config[Tx] {
	if c.MessageID == nil {
		c.MessageID = BrokerID
	}
	if c.Hash == nil {
		c.Hash = HashBody
	}
	if c.Workers == 0 {
		c.Workers = 1
	}
	if c.MaxBatch == 0 {
		c.MaxBatch = 1
		if c.Batch != nil {
			c.MaxBatch = defaultMaxBatch
		}
	}
	if c.Buffer == 0 {
		c.Buffer = max(256, 4*c.Workers*c.MaxBatch)
	}
	setDefault(&c.HandlerTimeout, 30*time.Second)
	setDefault(&c.AckTimeout, 10*time.Second)
	setDefault(&c.DrainTimeout, 15*time.Second)
	setDefault(&c.AbandonTimeout, 10*time.Second)
	setDefault(&c.StartTimeout, 30*time.Second)
	if c.Attempts == 0 {
		c.Attempts = 3
	}
	if c.RetryLater == nil {
		c.RetryLater = defaultRetryLater
	}
	setDefault(&c.RetryPoll, time.Second)
	if c.CrashLimit == 0 {
		c.CrashLimit = 5
	}
	c.Retry = c.Retry.withDefaults(100*time.Millisecond, 30*time.Second)
	c.Probe = c.Probe.withDefaults(100*time.Millisecond, 5*time.Second)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

func setDefault(d *time.Duration, to time.Duration) {
	if *d == 0 {
		*d = to
	}
}

// validate returns every mistake in c, joined, each naming its field.
func (c Config[Tx]) validate() error {
	var v mistakes
	v.check("Subscriber", CheckSubscriber(c.Subscriber))
	v.part("Source", c.Source)
	v.part("Inbox", c.Inbox)
	c.validateHandler(&v)
	v.notNegative("Workers", int64(c.Workers))
	v.notNegative("MaxTransactions", int64(c.MaxTransactions))
	v.notNegative("MaxBatch", int64(c.MaxBatch))
	v.notNegative("MaxBody", int64(c.MaxBody))
	if c.Buffer < c.Workers {
		v.add("Buffer", "must hold at least one message for each of the %d workers, is %d", c.Workers, c.Buffer)
	}
	if c.MaxBatch > 1 && c.Buffer < c.MaxBatch {
		v.add("Buffer", "must hold at least MaxBatch (%d), is %d", c.MaxBatch, c.Buffer)
	}
	v.notNegative("HandlerTimeout", int64(c.HandlerTimeout))
	v.notNegative("AckTimeout", int64(c.AckTimeout))
	v.notNegative("DrainTimeout", int64(c.DrainTimeout))
	v.notNegative("AbandonTimeout", int64(c.AbandonTimeout))
	v.notNegative("StartTimeout", int64(c.StartTimeout))
	v.notNegative("Attempts", int64(c.Attempts))
	for i, d := range c.RetryLater {
		v.notNegative(fmt.Sprintf("RetryLater[%d]", i), int64(d))
	}
	if _, ok := c.Inbox.(OrderInbox[Tx]); c.KeepOrder && !ok && !isNil(c.Inbox) {
		v.add("KeepOrder", "needs an inbox that is an OrderInbox, and is given a %T", c.Inbox)
	}
	if c.DeadLetter != nil {
		if isNil(c.DeadLetter) {
			v.add("DeadLetter", "is a nil %T", c.DeadLetter)
		} else {
			v.part("DeadLetter", c.DeadLetter)
		}
		if c.KeepOrder {
			v.add("DeadLetter", "cannot be used with KeepOrder: messages wait behind one that is in failed_messages, and a dead letter is not")
		}
	}
	v.notNegative("Horizon", int64(c.Horizon))
	v.notNegative("CrashLimit", int64(c.CrashLimit))
	v.notNegative("RetryPoll", int64(c.RetryPoll))
	v.check("Retry", c.Retry.validate())
	v.check("Probe", c.Probe.validate())
	return errors.Join(v...)
}

func (c Config[Tx]) validateHandler(v *mistakes) {
	if isNil(c.Batch) {
		v.part("Handler", c.Handler)
	} else {
		v.part("Batch", c.Batch)
		if !isNil(c.Handler) {
			v.add("Batch", "is set, and so is Handler: which of them is it to be?")
		}
		if len(c.Middleware) > 0 {
			v.add("Middleware", "cannot wrap Batch: let that do it")
		}
	}
	for i, m := range c.Middleware {
		if m == nil {
			v.add(fmt.Sprintf("Middleware[%d]", i), "is nil")
		}
	}
}

// mistakes collects what is wrong with a Config.
type mistakes []error

func (v *mistakes) add(field, format string, args ...any) {
	*v = append(*v, fmt.Errorf("%s: %w", field, fmt.Errorf(format, args...)))
}

func (v *mistakes) check(field string, err error) {
	if err != nil {
		v.add(field, "%w", err)
	}
}

func (v *mistakes) notNegative(field string, n int64) {
	if n < 0 {
		v.add(field, "must not be negative")
	}
}

// part checks a required value, and lets it check itself.
func (v *mistakes) part(field string, value any) {
	if isNil(value) {
		v.add(field, "is required, and is nil")
	} else if own, ok := value.(Validator); ok {
		v.check(field, own.Validate())
	}
}

// isNil tells whether value is nil, or holds a pointer or a function that is.
func isNil(value any) bool {
	switch v := reflect.ValueOf(value); v.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Pointer, reflect.Func:
		return v.IsNil()
	default:
		return false
	}
}

// CheckSubscriber returns an error unless s can name a subscription: valid UTF-8
// without NUL, of 1 to 255 bytes.
func CheckSubscriber(s string) error {
	switch {
	case s == "":
		return errors.New("is required; it names this subscription in processed_messages")
	case len(s) > maxSubscriberBytes:
		return fmt.Errorf("must have at most %d bytes, has %d", maxSubscriberBytes, len(s))
	case !utf8.ValidString(s) || strings.ContainsRune(s, 0):
		return fmt.Errorf("must be valid UTF-8 without NUL, is %q", s)
	}
	return nil
}
