// Package rabbitmq is a consumer.Source that reads a queue of RabbitMQ through
// amqp091-go.
//
// A source owns one connection with one channel and one consumer at a time.
// Together they are an epoch: a new connection is a new epoch and a new
// stream, and delivery tags start again at 1. Each message belongs to the
// stream that delivered it and is acknowledged on that stream's own channel or
// not at all, so an acknowledgement that comes too late can never hit another
// message. For this reason the client's own recovery (amqp091.Config.Recovery),
// which reopens a channel under the same name, is refused.
//
//	connecting ──► consuming ──► stopping ──► closed ──► backoff ──► connecting …
//
// A stream stops when the broker takes it (lost connection, closed channel,
// basic.cancel), when serve returns, or when Run's context ends. Then serve's
// context ends; what no Next has returned is handed back at once; what serve
// has begun can still be acknowledged; and only when serve has returned is
// the connection closed, which hands back the rest.
//
// Three goroutines belong to a stream: serve, one that takes deliveries from
// the client as they arrive, and one that writes acknowledgements. Run waits
// for all three. What bounds every wait is a field of Config.
package rabbitmq
