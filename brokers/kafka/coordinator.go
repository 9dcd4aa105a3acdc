package kafka

import (
	"context"
	"fmt"
	"io"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/offsetcommit"
)

// commitRequest goes to the coordinator that is known already. The client
// would ask for the coordinator before each commit, and the last commit of a
// generation is often one that has no time for more.
type commitRequest struct {
	offsetcommit.Request
	clientID    string
	coordinator int32
	version     int16
}

func (r *commitRequest) Broker(cluster protocol.Cluster) (protocol.Broker, error) {
	broker, known := cluster.Brokers[r.coordinator]
	if !known {
		return broker, kafka.BrokerNotAvailable
	}
	return broker, nil
}

// Required tells the client to leave the exchange to RawExchange.
func (r *commitRequest) Required(versions map[protocol.ApiKey]int16) bool {
	r.version = versions[protocol.OffsetCommit]
	return true
}

// RawExchange is what the client does: only it knows how to write the embedded
// request.
func (r *commitRequest) RawExchange(conn io.ReadWriter) (protocol.Message, error) {
	return protocol.RoundTrip(conn, r.version, correlation, r.clientID, &r.Request)
}

// sendCommit sends a commit to the coordinator.
func (c *client) sendCommit(ctx context.Context, request offsetcommit.Request) (*offsetcommit.Response, error) {
	if c.coordinator.Load() < 0 {
		found, err := c.findCoordinator(ctx)
		if err != nil {
			return nil, err
		}
		c.coordinator.Store(int32(found))
	}
	answer, err := c.transport.RoundTrip(ctx, c.api.Addr, &commitRequest{
		Request: request, clientID: c.config.ClientID, coordinator: c.coordinator.Load(),
	})
	if err != nil {
		c.coordinator.Store(-1)
		return nil, err
	}
	r := answer.(*offsetcommit.Response)
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			switch kafka.Error(p.ErrorCode) {
			case kafka.NotCoordinatorForGroup, kafka.GroupCoordinatorNotAvailable:
				c.coordinator.Store(-1)
			}
		}
	}
	return r, nil
}

// findCoordinator asks which broker keeps the group.
func (c *client) findCoordinator(ctx context.Context) (id int, err error) {
	found, err := c.api.FindCoordinator(ctx, &kafka.FindCoordinatorRequest{
		Key: c.config.Group, KeyType: kafka.CoordinatorKeyTypeConsumer,
	})
	if err == nil {
		err = found.Error
	}
	if err != nil {
		return -1, fmt.Errorf("group %q: %w", c.config.Group, err)
	}
	return found.Coordinator.NodeID, nil
}
