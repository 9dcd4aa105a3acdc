package consumer

import "time"

// Message is one delivery of one message. Handlers must not modify it: the
// same Message is handled again when an attempt fails.
type Message struct {
	// ID identifies the message within the subscriber. The adapter fills in
	// the broker's own id property where there is one; the runner replaces it
	// by what Config.MessageID returns.
	ID string
	// Type is the producer's name for what the message is: the AMQP type
	// property, the CloudEvents type. It may be empty.
	Type string
	// Topic is the Kafka topic, or the RabbitMQ routing key.
	Topic string
	// Key orders messages: those with one key are handled in the order
	// delivered. An empty key means no order. RabbitMQ has no keys by itself;
	// a function in its adapter's config gives them.
	Key []byte
	// Body is what the producer sent, byte for byte. It may be empty, and is
	// nil only for a Kafka tombstone.
	Body []byte
	// Headers holds the headers as text or bytes, in the broker's order where
	// it has one. Values that are neither (an AMQP integer or table) are
	// rendered as text; the original stands in Raw.
	Headers Headers
	// Time is when the producer made the message; zero where the broker does
	// not tell.
	Time time.Time
	// Position says where the message stands in the broker, for people and
	// for logs: "orders/3@1842" is a place in a log and stays the same for
	// ever, "queue orders #17" is one delivery.
	Position string
	// Redelivered is true when the broker says that the message may have been
	// delivered before.
	Redelivered bool
	// Attempt is 1 on the first attempt, and counts the attempts that failed.
	// What was nobody's failure (an outage, contention, a shutdown) counts
	// none.
	Attempt int
	// Hash is what the inbox remembers of the message, to tell a redelivery
	// from another message under the same id: the first 16 bytes of the
	// SHA-256 of what Config.Hash chooses. Empty means that nothing is
	// compared.
	Hash []byte
	// Raw is the client library's own record, such as an *amqp091.Delivery. It
	// is nil where there is none.
	Raw any
}

// Header is one header of a message.
type Header struct {
	Key   string
	Value []byte
}

// Headers are the headers of a message. A key may occur more than once, as
// Kafka allows. Keys are compared byte by byte.
type Headers []Header

// Get returns the value of the last header named key as a string, or "" when
// there is none. The last one wins, as in Kafka's own client (lastHeader).
func (h Headers) Get(key string) string {
	v, _ := h.Lookup(key)
	return string(v)
}

// Lookup returns the value of the last header named key, and whether there is
// one.
func (h Headers) Lookup(key string) ([]byte, bool) {
	for i := len(h) - 1; i >= 0; i-- {
		if h[i].Key == key {
			return h[i].Value, true
		}
	}
	return nil, false
}

// Values returns the values of all headers named key, in their order.
func (h Headers) Values(key string) [][]byte {
	var vs [][]byte
	for i := range h {
		if h[i].Key == key {
			vs = append(vs, h[i].Value)
		}
	}
	return vs
}
