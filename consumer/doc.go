// Package consumer lets each message of a broker take effect exactly once in a
// database, however often it is delivered and whoever crashes. A Runner reads a
// Source and hands each message to a Handler inside a transaction of an Inbox,
// which holds the message's effects together with the proof that it was
// processed; the message is acknowledged after the commit.
//
// # The life of a message
//
//	delivered     Config.MessageID names it, Config.Hash says what of it counts
//	claimed       the inbox begins a transaction and enters the id
//	handled       the handler does its work in that transaction
//	committed     effects and id, together or not at all
//	acknowledged  only now
//
// A crash before the commit leaves nothing, and the message is delivered again.
// A crash after it leaves the id: the redelivery is a duplicate, acknowledged
// without the handler. So an acknowledgement may be lost, but never come early.
// Only what the handler does through its transaction is covered; a mail that it
// sends is sent again with every attempt.
//
// # What is tried again
//
// An error of the handler, its panic and Config.HandlerTimeout are failed
// attempts: Message.Attempt counts them, and the message waits (Config.Retry,
// or what RetryAfter says) without occupying a worker. What was nobody's
// failure counts as none: an outage (ErrOutage) pauses the whole runner, which
// probes with one message at a time (Config.Probe) until the database answers;
// contention (ErrContention) is tried again within a quarter of a second; a
// commit whose outcome is unknown is looked up by claiming again. There is an end
// to that: a message that loses to others 20 times in a row, or under whose
// handler, alone, the connection to the database is lost 5 times in a row, fails
// the next time.
//
// After Config.Attempts the message is set aside: the inbox stores it with its
// id, in one transaction, and it is acknowledged. It is tried again from there
// after each of Config.RetryLater, without the broker, and then is set aside for
// good, for somebody to decide. An error marked Permanent, a message without a
// usable id (ErrNoID), and another message under an id that was processed
// (ErrMismatch) are set aside for good at once. With Config.DeadLetter what is
// set aside for good goes to the broker's dead letters instead. Without, an inbox
// that is no FailureInbox has nowhere to set messages aside: then attempts do not end, and those three
// end Run with a *MessageError, unacknowledged.
//
// # Order
//
// Messages with one key are handled in the order in which their stream
// delivered them, one after the other, also while the first of them is being
// retried in place. Messages of other keys, and those without one, go on
// meanwhile. Behind one that is set aside the later ones go on, too, unless
// Config.KeepOrder is set.
//
// # Batches
//
// With Config.MaxBatch a worker handles the messages that are already there in
// one transaction: one commit, one acknowledgement. A batch that fails leaves no
// trace, and its messages are handled again in smaller ones, at last each by
// itself, before anything counts as an attempt.
//
// # The end
//
// When Run's context ends nothing new begins. Handlers in flight go on for
// Config.DrainTimeout on a context that the shutdown did not end; those that
// finish are committed and acknowledged, and the rest is cut short without a
// trace and left to be delivered again. A handler that ignores its context is
// left behind after Config.AbandonTimeout, and Run says so. The loss of a stream
// drains that stream alone.
//
// # Adapters and inboxes
//
// A broker's adapter implements Source and Stream, and is tested with
// brokers/brokertest. An inbox implements Inbox and tells ErrOutage and
// ErrContention from errors of the handler. They may offer more: a Source
// Validator, Checker, HealthReporter and SystemNamer, a Stream Releaser, an
// Inbox Validator, Checker, TransactionLimiter, SessionInbox, FailureInbox,
// OrderInbox and CrashInbox, and its transaction BatchTx. Dead letters implement
// DeadLetter, and may be a Validator, a Checker and an io.Closer.
package consumer
