package consumer

import (
	"context"
	"time"
)

// Source is one subscription to a broker. Its contract is what
// brokers/brokertest checks. A Source may have more to offer: see Validator,
// Checker, HealthReporter and SystemNamer. One that wraps another must pass
// those on, since embedding the interface hides them.
type Source interface {
	// Run calls serve, in a goroutine of its own, for each stream that this
	// process comes to own, until ctx ends. It returns when every serve has
	// returned, with everything that it opened closed.
	//
	// Trouble that can pass (a lost connection, a deleted queue) is retried
	// with backoff and shown by HealthReporter; it neither ends Run nor is
	// logged more than once. Run returns nil after ctx ended, and an error
	// only when it cannot go on, or when a serve returned one: then it ends
	// the other streams and returns that error. What is forbidden to it from
	// the first is an error, too. A serve that returns nil although its stream
	// has not ended gives the stream up, and another one must follow.
	//
	// Run may be called again once it has returned; whether two may run at
	// once is the source's to say.
	Run(ctx context.Context, serve func(context.Context, Stream) error) error
}

// Stream is what one owner reads in order: a Kafka partition for one
// generation, a RabbitMQ channel. A Stream may have more to offer: see Releaser.
//
// A stream goes through three states. It is live, until the context that serve
// got ends: because the source is to stop, or because the stream was lost. Then
// it is stopping: Next returns io.EOF, serve finishes and acknowledges what it
// has begun, and Ack must still accept that if the broker still can, or return
// an error. When serve has returned it has ended. What was delivered and not
// acknowledged by then is delivered again, to whoever owns the messages next.
type Stream interface {
	// Name identifies the stream among those of its source, for people and
	// for logs: "orders/3", "queue orders".
	Name() string

	// Next blocks for the first message, adds what is already there up to
	// limit (at least 1), and never waits for more. It returns io.EOF when the
	// stream has ended, for whatever reason, and ctx's error when ctx ended
	// first; a message that it returned is never returned again by the same
	// stream, unless it was released. Each delivery is a Message of its own,
	// with a Position, and a Body that is nil only for a tombstone. The runner
	// may replace its ID, and sets Attempt and Hash. Next is called by one
	// goroutine at a time.
	Next(ctx context.Context, limit int) ([]*Message, error)

	// Ack acknowledges messages that Next returned, by these very pointers,
	// each once, in any order, from any goroutine. nil promises nothing: an acknowledgement may still be
	// lost, and then the messages are delivered again. Once the stream has
	// ended Ack returns an error and acknowledges nothing, whatever another
	// stream may have delivered since. The runner does not repeat an Ack that
	// failed: a stream which cannot acknowledge must end. Ack returns when ctx
	// ends.
	Ack(ctx context.Context, ms ...*Message) error
}

// Releaser is what a Stream implements when it can give single messages back
// before serve returns. The runner releases what it has not begun as soon as it
// stops, rather than keep it until the last handler has finished.
type Releaser interface {
	// Release lets messages of this stream that are not acknowledged be
	// delivered again, to anyone, at once. Its error needs no action: the
	// messages are delivered again in any case. It is safe for concurrent use
	// with Ack.
	Release(ctx context.Context, ms ...*Message) error
}

// Validator is what a Source, Inbox or Handler implements when its
// configuration can be wrong. New calls Validate and reports its error among
// the others.
type Validator interface {
	Validate() error
}

// Checker is what a Source or Inbox implements when it can tell before the
// first message what would go wrong later: a schema that was not migrated, a
// queue that does not exist. Run calls Check first. An error that wraps
// ErrOutage is tried again until Config.StartTimeout; any other ends Run.
type Checker interface {
	Check(ctx context.Context, p Plan) error
}

// Plan tells a Checker what the runner is going to do.
type Plan struct {
	Subscriber string
	// Transactions is how many transactions may be open at once; zero when
	// the configuration leaves that to the inbox.
	Transactions int
	// Workers is how many messages of one stream are handled at once.
	Workers int
	// MaxBatch is how many messages each of them handles at once, at least 1.
	MaxBatch int
	// HandlerTimeout and DrainTimeout are those of Config, zero replaced by
	// the default.
	HandlerTimeout, DrainTimeout time.Duration
	// Discards says that RetryDue of the inbox may be asked to discard a message.
	Discards bool
	// Warn reports what deserves a line in the log, but does not keep the
	// runner from working. It is never nil.
	Warn func(problem string)
}

// HealthReporter is what a Source implements to say whether it is connected.
// Health returns nil when it is, else an error that names what it waits for.
// It is safe for concurrent use and does not block.
type HealthReporter interface {
	Health() error
}

// SystemNamer is what a Source implements to name its broker in logs, by the
// values of OpenTelemetry's attribute messaging.system: "rabbitmq", "kafka".
type SystemNamer interface {
	System() string
}
