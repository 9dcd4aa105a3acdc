package consumer

import "context"

// Handler applies one message inside tx. The runner commits tx on nil and
// rolls it back otherwise. tx lacks the power to end the transaction.
//
// Handle is called from several goroutines at once when the subscription has
// several workers or streams, though never for two messages with one key of
// one stream. ctx ends at Config.HandlerTimeout, and when a shutdown has waited
// for Config.DrainTimeout; an attempt whose ctx has ended is rolled back,
// whatever Handle returns.
//
// The error steers what happens next: Permanent says that trying again is
// useless, RetryAfter says when to. Any other error is tried again with
// backoff. A panic counts as an error.
//
// Only what goes through tx takes effect exactly once. Anything else that
// Handle does (a mail, a call to another service) happens at least once.
type Handler[Tx any] interface {
	Handle(ctx context.Context, tx Tx, m *Message) error
}

// HandlerFunc makes a function a Handler.
type HandlerFunc[Tx any] func(ctx context.Context, tx Tx, m *Message) error

// Handle calls f.
func (f HandlerFunc[Tx]) Handle(ctx context.Context, tx Tx, m *Message) error {
	return f(ctx, tx, m)
}

// Middleware wraps a handler, to add what several handlers need: tracing,
// metrics, a tenant's row-level security. It runs inside the transaction and
// once per attempt.
type Middleware[Tx any] func(Handler[Tx]) Handler[Tx]
