package kafka

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go/sasl"
)

// Start says where a group begins in a partition of which it has committed
// nothing. A topic that is made again while this member runs begins at its first
// message, whatever Start says.
type Start uint8

const (
	// StartFirst begins with the oldest message there is.
	StartFirst Start = iota
	// StartLast begins with what is written after the partition was assigned
	// for the first time. That place is committed before anything is delivered,
	// and kept by this member until it is, so that nothing written since is
	// skipped. A partition that was added to the topic after the group had begun
	// it is new, and begins at its first message.
	StartLast
)

// String returns the name of the constant.
func (s Start) String() string {
	switch s {
	case StartFirst:
		return "StartFirst"
	case StartLast:
		return "StartLast"
	}
	return "Start(" + strconv.Itoa(int(s)) + ")"
}

// OutOfRange says what to do when the offset that the group has committed is of
// no use: its retention has deleted what was not read yet, a broker has lost
// messages, or it was committed for another topic of the same name, as when the
// topic was deleted and made again while no member ran, or when a tool has copied
// the group's offsets from another cluster. A topic that is made again while this
// member runs is no such case: it is read from its first message.
type OutOfRange uint8

const (
	// OutOfRangeFail ends Run with an error that wraps ErrOffsetOutOfRange.
	// Somebody has to decide.
	OutOfRangeFail OutOfRange = iota
	// OutOfRangeFirst goes on with the oldest message there is, and logs it.
	// Where a broker has lost messages and tells up to where the log is still
	// the same, that is the oldest one after that place.
	OutOfRangeFirst
	// OutOfRangeLast goes on with the next message that is written, and logs
	// it.
	OutOfRangeLast
)

// String returns the name of the constant.
func (o OutOfRange) String() string {
	switch o {
	case OutOfRangeFail:
		return "OutOfRangeFail"
	case OutOfRangeFirst:
		return "OutOfRangeFirst"
	case OutOfRangeLast:
		return "OutOfRangeLast"
	}
	return "OutOfRange(" + strconv.Itoa(int(o)) + ")"
}

// Config describes the membership in one consumer group. Only Brokers, Group
// and Topics are required. New copies the slices; what the other fields point to
// must not be changed while the source is in use.
//
// Kafka has no message id, so consumer.Config.MessageID must be set: its default,
// consumer.BrokerID, finds none, and every message would be set aside as
// unidentified. Use an id that the producer sets (consumer.HeaderID,
// consumer.CloudEventID …); or consumer.PositionID, which knows again what Kafka
// delivers twice, but not what a producer sends twice.
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

	// Window is how many messages of a partition may be delivered beyond what
	// the group has committed for it, and so how many a crash brings a second
	// time at most. While the first of them is tried again and again the rest
	// goes on, up to here, and then the partition waits. When what is settled
	// comes to half of it, it is committed before CommitInterval has
	// passed. The first Window messages after an assignment are marked as
	// Message.Redelivered; so all members of a group should have the same, and
	// after it was made smaller a part of them is not marked once. It counts
	// messages, not offsets, and must not be less than the runner's Workers to
	// keep all of them busy. Zero means 10 000.
	Window int
	// FetchBytes bounds the answer to one request for messages, which is often
	// compressed, and the decompressed batches that are held of a partition
	// before they are delivered. A larger batch still passes, alone. Zero means
	// 256 KiB.
	FetchBytes int
	// MaxBatchBytes is how large a compressed batch of messages may become: a
	// small batch can hold a lot of the same. A larger one is ErrUnreadable, and
	// ends Run. One is decompressed at a time, so the memory for a partition is
	// the answer, FetchBytes, and one batch. Zero means 64 MiB.
	MaxBatchBytes int
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
	// that members come or go. Zero means 3 seconds, or a third of
	// SessionTimeout if that is less.
	HeartbeatInterval time.Duration
	// RebalanceTimeout is how long the group waits, when members come or go,
	// for the others to finish what they have begun. The runner's
	// DrainTimeout and AbandonTimeout together should be below it, and below
	// SessionTimeout; a member that takes longer loses its partitions, which
	// costs nothing but redeliveries. Check warns of a DrainTimeout that is not;
	// it does not know AbandonTimeout. Zero means 60 seconds.
	RebalanceTimeout time.Duration
	// WatchInterval is how often the topics are looked at for new partitions.
	// Zero means 5 seconds.
	WatchInterval time.Duration

	// ClientID names this program in the brokers' logs, metrics and quotas.
	// Empty means "ackafter".
	ClientID string
	// Rack is where this process runs, in the terms of the brokers' setting
	// broker.rack. Where the brokers allow it, messages are then read from a
	// replica in the same rack. A replica that fails is not asked again for a
	// minute; the leader is. Empty means from the leader.
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
	// RequestTimeout bounds each request: one for messages by FetchWait more,
	// and one to join the group by RebalanceTimeout more, for so long a broker
	// may hold them back. Zero means 10 seconds.
	RequestTimeout time.Duration
	// CloseTimeout bounds all that is left to do when partitions are given up
	// at the end of Run: the farewell to the group, without which the group
	// notices after SessionTimeout, and closing the connections. The last commit
	// comes before it, and has RequestTimeout. Zero means 5 seconds.
	CloseTimeout time.Duration
	// BackoffMin and BackoffMax are the shortest and the longest wait before
	// something that has failed is tried again. The wait doubles each time,
	// less a random part of up to a half. Zero means 100 milliseconds and
	// 5 seconds; or as much as the other one, where that would put them in the
	// wrong order.
	BackoffMin, BackoffMax time.Duration

	// StallAfter is how long a partition may stand still, although messages
	// wait in it, before Health returns an error. The time begins when the first
	// of them is there. Zero means 5 minutes, negative means for ever.
	StallAfter time.Duration
	// Logger gets a line when something begins to fail, one when that is over,
	// and one for each rebalance. Nil means slog.Default().
	Logger *slog.Logger
}

// New returns the source that c describes, or every mistake in c. It connects
// to nothing. consumer.Config.MessageID must be chosen, see Config.
func New(c Config) (*Source, error) {
	s := newSource(c)
	if err := s.Validate(); err != nil {
		return nil, err
	}
	return s, nil
}

// Group returns the source of topics for a member of a consumer group, with
// the defaults of Config. Mistakes in its arguments are reported by Validate,
// which consumer.New calls. consumer.Config.MessageID must be chosen, see Config.
func Group(brokers []string, group string, topics ...string) *Source {
	return newSource(Config{Brokers: brokers, Group: group, Topics: topics})
}

// withDefaults replaces what is zero, and makes the slices its own.
func (c Config) withDefaults() Config {
	c.Brokers, c.Topics = slices.Clone(c.Brokers), slices.Clone(c.Topics)
	c.Window = or(c.Window, 10_000)
	c.FetchBytes = or(c.FetchBytes, 256<<10)
	c.MaxBatchBytes = or(c.MaxBatchBytes, 64<<20)
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
	c.BackoffMin = or(c.BackoffMin, min(100*time.Millisecond, or(c.BackoffMax, time.Hour)))
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
