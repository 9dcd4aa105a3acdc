package kafka

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/segmentio/kafka-go"
)

// origins finds out where the partitions of one generation begin, and in which
// topics: once for all of them, when the first one asks.
type origins struct {
	client     *client
	known      *known
	partitions map[string][]int // what is assigned

	mu      sync.Mutex
	offsets map[string]map[int]offset
}

// of returns the id of a topic, and what the group has committed for one of
// its partitions. The id is the same for the whole generation. It is asked for
// before the offset, so that an offset which belongs to a topic that was made
// in between is not taken for one of the topic before.
func (o *origins) of(ctx context.Context, topic string, partition int) (offset, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, done := o.offsets[topic]; !done {
		if err := o.ask(ctx, topic); err != nil {
			return offset{}, err
		}
	}
	at, told := o.offsets[topic][partition]
	if !told {
		return offset{}, fmt.Errorf("the broker does not tell what is committed for %s/%d", topic, partition)
	}
	return at, nil
}

// ask asks for all topics of which nothing is known yet.
func (o *origins) ask(ctx context.Context, topic string) error {
	var names []string
	for name := range o.partitions {
		if _, done := o.offsets[name]; !done {
			names = append(names, name)
		}
	}
	topics, err := o.client.look(ctx, names)
	if err != nil {
		return fmt.Errorf("the topics' ids: %w", err)
	}
	here := map[string]topicState{}
	partitions := map[string][]int32{}
	for _, t := range topics {
		if t.err == nil {
			here[t.name] = t
			partitions[t.name] = o.wanted(t)
		}
	}
	if _, exists := here[topic]; !exists {
		return fmt.Errorf("topic %q: %w", topic, kafka.UnknownTopicOrPartition)
	}
	all, err := o.client.committed(ctx, partitions)
	if err != nil {
		return err
	}
	for name, t := range here {
		o.known.noteID(name, t.id)
		o.offsets[name] = judge(t, all[name])
	}
	return nil
}

// wanted returns the partitions to ask for: those that are assigned, and for
// StartLast all others, which tell whether one is new.
func (o *origins) wanted(t topicState) []int32 {
	var all []int32
	for _, p := range o.partitions[t.name] {
		all = append(all, int32(p))
	}
	if o.client.config.Start == StartLast {
		for p := range int32(t.partitions) {
			if !slices.Contains(all, p) {
				all = append(all, p)
			}
		}
	}
	return all
}

// judge says what the offsets that the group has mean for a topic as it is.
//
// The group has begun a topic when it has committed anything in it. A partition
// without a commit was then there already, and its owner has not come to commit
// its beginning; or it was added since, which the number of partitions in the
// marks tells. Without a mark it counts as added: nothing in it is skipped.
func judge(t topicState, all map[int]stored) map[int]offset {
	begun, initial := false, 0
	offsets := make(map[int]offset, len(all))
	for partition, s := range all {
		id, n := parseMark(s.metadata)
		o := offset{at: s.at, epoch: -1}
		if id != "" {
			o.epoch = s.epoch // others may write zero when they do not know it
		}
		if id != "" && t.id != (topicID{}) && id != t.id.String() {
			o.other = id
		} else if s.at >= 0 {
			begun = true
			if n > 0 && (initial == 0 || n < initial) {
				initial = n
			}
		}
		offsets[partition] = o
	}
	if !begun {
		initial = t.partitions
	}
	for partition, o := range offsets {
		o.mark = mark{t.id, initial}
		o.added = partition >= initial
		offsets[partition] = o
	}
	return offsets
}
