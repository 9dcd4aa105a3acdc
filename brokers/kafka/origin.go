package kafka

import (
	"context"
	"fmt"
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
	ids, err := o.client.ids(ctx, names)
	if err != nil {
		return err
	}
	if _, exists := ids[topic]; !exists {
		return fmt.Errorf("topic %q: %w", topic, kafka.UnknownTopicOrPartition)
	}
	partitions := map[string][]int{}
	for name := range ids {
		partitions[name] = o.partitions[name]
	}
	offsets, err := o.client.committed(ctx, ids, partitions)
	if err != nil {
		return err
	}
	for name, id := range ids {
		o.known.noteID(name, id)
		o.offsets[name] = offsets[name]
	}
	return nil
}
