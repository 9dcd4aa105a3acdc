// Package memory is a broker inside the process, for tests and first steps.
//
// It behaves like a real one where it matters to a consumer: messages are
// delivered until they are acknowledged, in order, and again, marked as
// redelivered, whenever a stream was lost. It keeps nothing on disk, so
// everything published is gone with the process.
package memory

import (
	"bytes"
	"context"
	"errors"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ackafter/ackafter/consumer"
)

// Config shapes a Broker. The zero Config is valid.
type Config struct {
	// Streams is how many streams the messages are spread over, as over the
	// partitions of a Kafka topic. Less than one means one.
	Streams int
}

// Broker holds messages until they are acknowledged, and is the
// consumer.Source of them. It is safe for concurrent use.
type Broker struct {
	seed    maphash.Seed
	queues  []*queue
	turn    atomic.Uint64 // spreads the messages without a key
	pending atomic.Int64  // published and not acknowledged

	mu      sync.Mutex
	drained chan struct{} // closed when pending falls to zero; nil while nobody waits
}

// New returns an empty broker with one stream.
func New() *Broker { return NewWithConfig(Config{}) }

// NewWithConfig returns an empty broker.
func NewWithConfig(c Config) *Broker {
	b := &Broker{seed: maphash.MakeSeed()}
	for i := range max(c.Streams, 1) {
		b.queues = append(b.queues, newQueue(i, b.settle))
	}
	return b
}

// Validate returns an error for a Broker that New did not make.
func (b *Broker) Validate() error {
	if b == nil || b.queues == nil {
		return errors.New("memory: make the broker with New or NewWithConfig")
	}
	return nil
}

// System returns "memory".
func (b *Broker) System() string { return "memory" }

// Publish appends copies of ms to their streams, in order. Messages with one
// key go to the same stream; those without are spread evenly. The broker
// fills in Position, Redelivered, Attempt and Raw when it delivers.
func (b *Broker) Publish(ms ...*consumer.Message) {
	b.pending.Add(int64(len(ms)))
	for _, m := range ms {
		b.queueOf(m.Key).publish(clone(m))
	}
}

func (b *Broker) queueOf(key []byte) *queue {
	n := uint64(len(b.queues))
	if len(key) == 0 {
		return b.queues[b.turn.Add(1)%n]
	}
	return b.queues[maphash.Bytes(b.seed, key)%n]
}

// Disconnect takes every stream away from its owner at once, as a lost
// connection does. An Ack on a lost stream is an error from then on. What was
// not acknowledged is delivered again, first and in order, on new streams:
// to a Run that is waiting for one, else to the same Run once its serve has
// returned.
func (b *Broker) Disconnect() {
	for _, q := range b.queues {
		q.disconnect()
	}
}

// Drained waits until everything published has been acknowledged. It returns
// ctx's error when ctx ends first.
func (b *Broker) Drained(ctx context.Context) error {
	b.mu.Lock()
	if b.pending.Load() == 0 {
		b.mu.Unlock()
		return nil
	}
	if b.drained == nil {
		b.drained = make(chan struct{})
	}
	drained := b.drained
	b.mu.Unlock()
	select {
	case <-drained:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// settle counts n messages as acknowledged.
func (b *Broker) settle(n int) {
	if b.pending.Add(int64(-n)) != 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.drained != nil {
		close(b.drained)
		b.drained = nil
	}
}

// clone copies what the publisher may come to change.
func clone(m *consumer.Message) *consumer.Message {
	c := *m
	c.Key = bytes.Clone(m.Key)
	c.Body = bytes.Clone(m.Body)
	c.Headers = slices.Clone(m.Headers)
	for i := range c.Headers {
		c.Headers[i].Value = bytes.Clone(c.Headers[i].Value)
	}
	return &c
}
