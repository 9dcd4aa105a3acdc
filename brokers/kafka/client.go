package kafka

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"
	fetchapi "github.com/segmentio/kafka-go/protocol/fetch"
)

// metadataAge is how long, at most, kafka-go believes what it knows of the
// cluster. After a partition has moved to another leader, requests go to the
// wrong broker for so long.
const metadataAge = 2 * time.Second

// client is the way to the cluster for one Run or Check.
type client struct {
	config    Config
	sockets   *sockets
	transport *kafka.Transport
	api       *kafka.Client
	cancel    context.CancelFunc

	coordinator atomic.Int32 // the broker that keeps the group, or -1
}

func connect(c Config) *client {
	ctx, cancel := context.WithCancel(context.Background())
	s := newSockets(c)
	t := &kafka.Transport{
		Dial:           s.dialContext,
		DialTimeout:    c.DialTimeout,
		IdleTimeout:    time.Minute,
		MetadataTTL:    metadataAge,
		MetadataTopics: c.Topics,
		ClientID:       c.ClientID,
		TLS:            c.TLS,
		SASL:           c.SASL,
		Context:        ctx,
	}
	it := &client{
		config: c, sockets: s, transport: t, cancel: cancel,
		api: &kafka.Client{Addr: kafka.TCP(c.Brokers...), Timeout: c.RequestTimeout, Transport: t},
	}
	it.coordinator.Store(-1)
	return it
}

// close ends everything, and waits until it has ended, for CloseTimeout at most.
func (c *client) close() {
	ctx, cancel := context.WithTimeout(context.Background(), c.config.CloseTimeout)
	defer cancel()
	c.closeWithin(ctx)
}

// closeWithin is close with another limit.
func (c *client) closeWithin(ctx context.Context) {
	c.cancel()
	c.transport.CloseIdleConnections()
	c.sockets.close(ctx)
}

// place says what to fetch, and from whom.
type place struct {
	topic     string
	id        topicID // zero when it is not known
	partition int
	replica   int32         // the broker to ask instead of the leader, or -1
	newest    *atomic.Int32 // the newest fetch that the broker knows; 0 when it is not known
	epoch     int32         // of the leader that wrote what is before the offset, or -1
	rack      string        // where a replica may be; empty for the leader
}

// fetch asks for messages of one partition, and for as long as wait when there
// are none.
func (c *client) fetch(ctx context.Context, at place, offset int64, wait time.Duration) (*fetched, error) {
	ctx, cancel := context.WithTimeout(ctx, wait+c.config.RequestTimeout)
	defer cancel()
	answer, err := c.transport.RoundTrip(ctx, c.api.Addr, &fetch{
		clientID: c.config.ClientID,
		replica:  at.replica,
		id:       at.id,
		newest:   at.newest,
		epoch:    at.epoch,
		Request: fetchapi.Request{
			ReplicaID:      -1,
			MaxWaitTime:    int32(wait.Milliseconds()),
			MinBytes:       1,
			MaxBytes:       int32(c.config.FetchBytes),
			IsolationLevel: int8(c.isolation()),
			SessionEpoch:   -1, // no session
			RackID:         at.rack,
			Topics: []fetchapi.RequestTopic{{Topic: at.topic, Partitions: []fetchapi.RequestPartition{{
				Partition:          int32(at.partition),
				CurrentLeaderEpoch: -1,
				FetchOffset:        offset,
				LogStartOffset:     -1,
				PartitionMaxBytes:  int32(c.config.FetchBytes),
			}}}},
		},
	})
	if err != nil {
		return nil, err
	}
	return answer.(*fetched), nil
}

func (c *client) isolation() kafka.IsolationLevel {
	if c.config.ReadUncommitted {
		return kafka.ReadUncommitted
	}
	return kafka.ReadCommitted
}

// ends returns the first offset of a partition, and the one after the last that
// can be read: with read_committed, the first one of an open transaction.
func (c *client) ends(ctx context.Context, topic string, partition int) (first, last int64, err error) {
	answer, err := c.api.ListOffsets(ctx, &kafka.ListOffsetsRequest{
		Topics:         map[string][]kafka.OffsetRequest{topic: {kafka.FirstOffsetOf(partition), kafka.LastOffsetOf(partition)}},
		IsolationLevel: c.isolation(),
	})
	if err != nil {
		return 0, 0, err
	}
	for _, p := range answer.Topics[topic] {
		if p.Partition == partition {
			return p.FirstOffset, p.LastOffset, p.Error
		}
	}
	return 0, 0, fmt.Errorf("the broker does not tell the offsets of %s/%d", topic, partition)
}

// topics returns what the cluster says of the topics.
func (c *client) topics(ctx context.Context) ([]kafka.Topic, error) {
	answer, err := c.api.Metadata(ctx, &kafka.MetadataRequest{Topics: c.config.Topics})
	if err != nil {
		return nil, err
	}
	return answer.Topics, nil
}

// group returns the configuration of the membership.
func (c *client) group() kafka.ConsumerGroupConfig {
	return kafka.ConsumerGroupConfig{
		ID:      c.config.Group,
		Brokers: c.config.Brokers,
		Topics:  c.config.Topics,
		Dialer: &kafka.Dialer{
			ClientID:      c.config.ClientID,
			DialFunc:      c.sockets.dialContext,
			Timeout:       c.config.DialTimeout,
			TLS:           c.config.TLS,
			SASLMechanism: c.config.SASL,
		},
		HeartbeatInterval: c.config.HeartbeatInterval,
		SessionTimeout:    c.config.SessionTimeout,
		RebalanceTimeout:  c.config.RebalanceTimeout,
		JoinGroupBackoff:  c.config.BackoffMin, // membership.run waits longer
		Timeout:           c.config.RequestTimeout,
	}
}
