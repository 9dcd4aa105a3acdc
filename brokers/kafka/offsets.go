package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/offsetcommit"
)

// The metadata of a committed offset says of which topic it is: the group
// itself knows only the topic's name. What has no such mark, because another
// client or an operator has committed it, is believed to be of the topic that
// there is.
const metadataMark = "ackafter topic-id="

// offset is one that is committed, or to be committed.
type offset struct {
	at int64 // negative when there is none
	id topicID
	// other says that it was committed for another topic of the same name.
	other bool
}

// markOf returns the metadata for an offset of the topic.
func markOf(id topicID) string {
	if id == (topicID{}) {
		return ""
	}
	return metadataMark + id.String()
}

// committed returns what the group has committed for partitions of topics with
// the given ids.
func (c *client) committed(ctx context.Context, ids map[string]topicID, partitions map[string][]int) (map[string]map[int]offset, error) {
	answer, err := c.api.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: c.config.Group, Topics: partitions})
	if err == nil {
		err = answer.Error
	}
	if err != nil {
		return nil, fmt.Errorf("the committed offsets: %w", err)
	}
	all := map[string]map[int]offset{}
	for topic, ps := range answer.Topics {
		all[topic] = map[int]offset{}
		for _, p := range ps {
			if p.Error != nil {
				return nil, fmt.Errorf("the committed offset of %s/%d: %w", topic, p.Partition, p.Error)
			}
			marked := strings.HasPrefix(p.Metadata, metadataMark)
			all[topic][p.Partition] = offset{
				at: p.CommittedOffset, id: ids[topic],
				other: marked && ids[topic] != (topicID{}) && p.Metadata != markOf(ids[topic]),
			}
		}
	}
	return all, nil
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
				PartitionIndex: int32(partition), CommittedOffset: o.at, CommittedLeaderEpoch: -1, CommittedMetadata: markOf(o.id),
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
