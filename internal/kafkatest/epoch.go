package kafkatest

import (
	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/offsetcommit"
	"github.com/segmentio/kafka-go/protocol/offsetfetch"
)

// CommitIn is CommitAs with the epoch of the leader, which kafka-go's client
// does not offer.
func (c *Topic) CommitIn(partition int, offset int64, epoch int32, metadata string) {
	c.T.Helper()
	answer, err := c.API.Transport.RoundTrip(c.T.Context(), c.API.Addr, &offsetcommit.Request{
		GroupID: c.Group, GenerationID: -1, RetentionTimeMs: -1,
		Topics: []offsetcommit.RequestTopic{{Name: c.Name, Partitions: []offsetcommit.RequestPartition{{
			PartitionIndex: int32(partition), CommittedOffset: offset, CommittedLeaderEpoch: epoch, CommittedMetadata: metadata,
		}}}},
	})
	if err != nil {
		c.T.Fatal(err)
	}
	if code := answer.(*offsetcommit.Response).Topics[0].Partitions[0].ErrorCode; code != 0 {
		c.T.Fatal(kafkago.Error(code))
	}
}

// CommittedIn is CommittedAs with the epoch of the leader.
func (c *Topic) CommittedIn(partition int) (offset int64, epoch int32, metadata string) {
	c.T.Helper()
	answer, err := c.API.Transport.RoundTrip(c.T.Context(), c.API.Addr, &offsetfetch.Request{
		GroupID: c.Group,
		Topics:  []offsetfetch.RequestTopic{{Name: c.Name, PartitionIndexes: []int32{int32(partition)}}},
	})
	if err != nil {
		c.T.Fatal(err)
	}
	p := answer.(*offsetfetch.Response).Topics[0].Partitions[0]
	if p.ErrorCode != 0 {
		c.T.Fatal(kafkago.Error(p.ErrorCode))
	}
	return p.CommittedOffset, p.ComittedLeaderEpoch, p.Metadata
}
