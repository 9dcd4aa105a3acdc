package kafka

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"time"

	"github.com/segmentio/kafka-go/sasl"
)

// Start says where a group begins in a partition of which it has committed
// nothing. A topic that is made again while this member runs, or of which the
// group has kept an offset of the one before, begins at its first message.
type Start uint8

const (
	// StartFirst begins with the oldest message there is.
	StartFirst Start = iota
	// StartLast begins with what is written after the partition was assigned
	// for the first time. That place is committed at once, so that a restart
	// before the first message is settled loses nothing.
	StartLast
)

// OutOfRange says what to do when the log has no message at the offset that
// the group has committed: its retention has deleted what was not read yet, or
// a broker has lost messages. A topic that was deleted and made again is no such
// case, unless the brokers have no topic ids: it is read from its first message.
type OutOfRange uint8

const (
	// OutOfRangeFail ends Run with an error. Somebody has to decide.
	OutOfRangeFail OutOfRange = iota
	// OutOfRangeFirst goes on with the oldest message there is, and logs it.
	OutOfRangeFirst
	// OutOfRangeLast goes on with the next message that is written, and logs
	// it.
	OutOfRangeLast
)

// Config describes the membership in one consumer group. Only Brokers, Group
// and Topics are required.
type Config struct {
	// Brokers are some of the cluster's brokers, each as host:port. The others
	// are found through them.
	Brokers []string
	// Group is the name of the consumer group. Its members share the
	// partitions, and what they have finished is kept under its name.
	Group string
	// Topics are the topics to read. They must exist.
	Topics []string

	// Start says where a group without commits begins. Zero means StartFirst.
	Start Start
	// OutOfRange says what to do about a committed offset that the log does
	// not hold any more. Zero means OutOfRangeFail.
	OutOfRange OutOfRange
	// ReadUncommitted also delivers what belongs to a transaction that is
	// still open, or was aborted. False means that such messages are never
	// seen (read_committed).
	ReadUncommitted bool

	// Window is how many messages of a partition may be delivered beyond the
	// first one that is not settled. While that one is tried again and again
	// the rest goes on, up to here; and a crash brings no more than these a
	// second time. Zero means 10 000.
	Window int
	// FetchBytes bounds the answer to one request for messages, and what is
	// held of a partition before it is delivered. A larger batch of messages
	// still passes, alone. Zero means 256 KiB.
	FetchBytes int
	// FetchWait is how long a broker that has nothing new holds a request
	// back. Zero means 500 milliseconds.
	FetchWait time.Duration

	// CommitInterval is how often finished offsets are committed; they also
	// are when a partition is given up. What was finished and not committed
	// at a crash is delivered again, and the inbox knows it. Zero means
	// 1 second.
	CommitInterval time.Duration
	// SessionTimeout is how long the group waits for a sign of life before it
	// gives the partitions of a member to others. Zero means 45 seconds.
	SessionTimeout time.Duration
	// HeartbeatInterval is how often a member gives a sign of life, and learns
	// that members come or go. Zero means 3 seconds.
	HeartbeatInterval time.Duration
	// RebalanceTimeout is how long the group waits, when members come or go,
	// for the others to finish what they have begun. The runner's
	// DrainTimeout and AbandonTimeout together should be below it, and below
	// SessionTimeout; a member that takes longer loses its partitions, which
	// costs nothing but redeliveries. Zero means 60 seconds.
	RebalanceTimeout time.Duration
	// WatchInterval is how often the topics are looked at for new partitions.
	// Zero means 5 seconds.
	WatchInterval time.Duration

	// ClientID names this program in the brokers' logs, metrics and quotas.
	// Empty means "ackafter".
	ClientID string
	// Rack is where this process runs, in the terms of the brokers' setting
	// broker.rack. Where the brokers allow it, messages are then read from a
	// replica in the same rack. Empty means from the leader.
	Rack string
	// TLS encrypts the connections. Nil means that they are not.
	TLS *tls.Config
	// SASL proves who this is, for example plain.Mechanism or what
	// scram.Mechanism returns, from kafka-go's packages below sasl. Nil means
	// no proof.
	SASL sasl.Mechanism
	// Dial opens a connection, below TLS. Nil means net.Dialer.DialContext.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// DialTimeout bounds connecting to a broker, TLS and SASL included. Zero
	// means 10 seconds.
	DialTimeout time.Duration
	// RequestTimeout bounds each request. Zero means 10 seconds.
	RequestTimeout time.Duration
	// CloseTimeout bounds the farewell to the group; without one, the group
	// notices after SessionTimeout. Zero means 5 seconds.
	CloseTimeout time.Duration
	// BackoffMin and BackoffMax are the shortest and the longest wait before
	// something that has failed is tried again. The wait doubles each time,
	// less a random part of up to a half. Zero means 100 milliseconds, and
	// 5 seconds.
	BackoffMin, BackoffMax time.Duration

	// StallAfter is how long a partition may stand still, although messages
	// wait in it, before Health returns an error. Zero means 5 minutes,
	// negative means for ever.
	StallAfter time.Duration
	// Logger gets a line when something begins to fail, one when that is over,
	// and one for each rebalance. Nil means slog.Default().
	Logger *slog.Logger
}

// New returns the source that c describes, or every mistake in c. It connects
// to nothing.
func New(c Config) (*Source, error) {
	s := newSource(c)
	if err := s.Validate(); err != nil {
		return nil, err
	}
	return s, nil
}

// Group returns the source of topics for a member of a consumer group, with
// the defaults of Config. Mistakes in its arguments are reported by Validate,
// which consumer.New calls.
func Group(brokers []string, group string, topics ...string) *Source {
	return newSource(Config{Brokers: brokers, Group: group, Topics: topics})
}

// withDefaults replaces what is zero.
func (c Config) withDefaults() Config {
	c.Window = or(c.Window, 10_000)
	c.FetchBytes = or(c.FetchBytes, 256<<10)
	c.FetchWait = or(c.FetchWait, 500*time.Millisecond)
	c.CommitInterval = or(c.CommitInterval, time.Second)
	c.SessionTimeout = or(c.SessionTimeout, 45*time.Second)
	c.HeartbeatInterval = or(c.HeartbeatInterval, min(3*time.Second, c.SessionTimeout/3))
	c.RebalanceTimeout = or(c.RebalanceTimeout, time.Minute)
	c.WatchInterval = or(c.WatchInterval, 5*time.Second)
	c.ClientID = or(c.ClientID, "ackafter")
	c.DialTimeout = or(c.DialTimeout, 10*time.Second)
	c.RequestTimeout = or(c.RequestTimeout, 10*time.Second)
	c.CloseTimeout = or(c.CloseTimeout, 5*time.Second)
	c.BackoffMin = or(c.BackoffMin, 100*time.Millisecond)
	c.BackoffMax = or(c.BackoffMax, max(c.BackoffMin, 5*time.Second))
	c.StallAfter = or(c.StallAfter, 5*time.Minute)
	c.Logger = or(c.Logger, slog.Default())
	return c
}

// or returns v, or byDefault when v is zero.
func or[T comparable](v, byDefault T) T {
	var zero T
	if v == zero {
		return byDefault
	}
	return v
}
