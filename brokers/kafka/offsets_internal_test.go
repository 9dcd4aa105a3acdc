package kafka

import (
	"errors"
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/offsetcommit"
)

// Each partition of a commit succeeds or fails by itself.
func TestAccepted(t *testing.T) {
	t.Parallel()
	sent := map[string]map[int]offset{"a": {0: {}, 1: {}}, "b": {0: {}}}
	topic := func(name string, codes ...kafka.Error) offsetcommit.ResponseTopic {
		r := offsetcommit.ResponseTopic{Name: name}
		for i, code := range codes {
			r.Partitions = append(r.Partitions, offsetcommit.ResponsePartition{PartitionIndex: int32(i), ErrorCode: int16(code)})
		}
		return r
	}
	for name, c := range map[string]struct {
		topics  []offsetcommit.ResponseTopic
		want    error // nil for any error when not all are done
		refused bool
		done    int
	}{
		"all":           {[]offsetcommit.ResponseTopic{topic("a", 0, 0), topic("b", 0)}, nil, false, 3},
		"one fails":     {[]offsetcommit.ResponseTopic{topic("a", 0, kafka.UnknownTopicOrPartition), topic("b", 0)}, kafka.UnknownTopicOrPartition, false, 2},
		"all fenced":    {[]offsetcommit.ResponseTopic{topic("a", kafka.IllegalGeneration, kafka.IllegalGeneration), topic("b", kafka.IllegalGeneration)}, kafka.IllegalGeneration, true, 0},
		"rather others": {[]offsetcommit.ResponseTopic{topic("a", kafka.UnknownMemberId, kafka.UnknownMemberId), topic("b", kafka.NotCoordinatorForGroup)}, kafka.NotCoordinatorForGroup, false, 0},
		"one untold":    {[]offsetcommit.ResponseTopic{topic("a", 0, 0)}, nil, false, 2},
		"none told":     {nil, nil, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			done, err := accepted(&offsetcommit.Response{Topics: c.topics}, sent)
			n := 0
			for _, ps := range done {
				n += len(ps)
			}
			if n != c.done || (err == nil) != (c.done == 3) || c.want != nil && !errors.Is(err, c.want) || err != nil && refused(err) != c.refused {
				t.Errorf("%d done, %v; want %d, %v", n, err, c.done, c.want)
			}
		})
	}
}
