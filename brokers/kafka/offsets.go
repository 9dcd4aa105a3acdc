package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/offsetcommit"
	"github.com/segmentio/kafka-go/protocol/offsetfetch"
)

// offset is one that is committed, or to be committed.
type offset struct {
	at    int64  // negative when there is none
	epoch int32  // of the leader that wrote what is before it, or -1
	mark  mark   // of the topic that there is
	other string // the id of another topic of the same name for which it was committed; or empty
	added bool   // the partition was added after the group had begun the topic
	below int    // how many of the messages that were delivered are below it
}

// committed returns what the group has committed for partitions of topics. It
// is kafka-go's OffsetFetch, but for the leader's epoch.
func (c *client) committed(ctx context.Context, partitions map[string][]int32) (map[string]map[int]stored, error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.RequestTimeout)
	defer cancel()
	request := &offsetfetch.Request{GroupID: c.config.Group}
	for topic, ps := range partitions {
		request.Topics = append(request.Topics, offsetfetch.RequestTopic{Name: topic, PartitionIndexes: ps})
	}
	answer, err := c.transport.RoundTrip(ctx, c.api.Addr, request)
	if err != nil {
		return nil, fmt.Errorf("the committed offsets: %w", err)
	}
	r := answer.(*offsetfetch.Response)
	if r.ErrorCode != 0 {
		return nil, fmt.Errorf("the committed offsets: %w", kafka.Error(r.ErrorCode))
	}
	all := map[string]map[int]stored{}
	for _, t := range r.Topics {
		all[t.Name] = map[int]stored{}
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				return nil, fmt.Errorf("the committed offset of %s/%d: %w", t.Name, p.PartitionIndex, kafka.Error(p.ErrorCode))
			}
			all[t.Name][int(p.PartitionIndex)] = stored{at: p.CommittedOffset, epoch: p.ComittedLeaderEpoch, metadata: p.Metadata}
		}
	}
	return all, nil
}

// stored is what the group has of a partition.
type stored struct {
	at       int64 // negative when there is nothing
	epoch    int32
	metadata string
}

// commit tells the group, on behalf of a generation, what is finished. It
// returns the partitions whose offsets the group has now, and what became of
// the others.
//
// It is kafka-go's CommitOffsets, but for the metadata, and for the errors,
// each of which counts for its partition.
func (c *client) commit(ctx context.Context, gen *kafka.Generation, offsets map[string]map[int]offset) (done map[string]map[int]bool, err error) {
	request := offsetcommit.Request{
		GroupID: gen.GroupID, GenerationID: gen.ID, MemberID: gen.MemberID,
		RetentionTimeMs: -1, // the brokers' own
	}
	for topic, ps := range offsets {
		t := offsetcommit.RequestTopic{Name: topic}
		for partition, o := range ps {
			t.Partitions = append(t.Partitions, offsetcommit.RequestPartition{
				PartitionIndex: int32(partition), CommittedOffset: o.at, CommittedLeaderEpoch: o.epoch, CommittedMetadata: o.mark.String(),
			})
		}
		request.Topics = append(request.Topics, t)
	}
	answer, err := c.sendCommit(ctx, request)
	if err != nil {
		return nil, err
	}
	return accepted(answer, offsets)
}

// accepted reads the answer to a commit. When partitions have failed, it
// returns one of the errors, and rather one that is no refusal.
func accepted(answer *offsetcommit.Response, offsets map[string]map[int]offset) (done map[string]map[int]bool, err error) {
	codes := map[string]map[int]int16{}
	for _, t := range answer.Topics {
		codes[t.Name] = map[int]int16{}
		for _, p := range t.Partitions {
			codes[t.Name][int(p.PartitionIndex)] = p.ErrorCode
		}
	}
	done = map[string]map[int]bool{}
	for topic, ps := range offsets {
		done[topic] = map[int]bool{}
		for partition := range ps {
			code, told := codes[topic][partition]
			if told && code == 0 {
				done[topic][partition] = true
				continue
			}
			failed := fmt.Errorf("%s/%d: %w", topic, partition, kafka.Error(code))
			if !told {
				failed = fmt.Errorf("%s/%d: the broker does not tell what became of it", topic, partition)
			}
			if err == nil || refused(err) {
				err = failed
			}
		}
	}
	return done, err
}

// refused tells whether a commit was refused since the generation has ended,
// which is normal: another member has the partitions.
func refused(err error) bool {
	return errors.Is(err, kafka.IllegalGeneration) || errors.Is(err, kafka.UnknownMemberId) || errors.Is(err, kafka.RebalanceInProgress)
}
