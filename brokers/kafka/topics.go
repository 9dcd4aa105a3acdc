package kafka

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/segmentio/kafka-go"
)

// look asks how topics are now. Where the brokers have no topic ids, the
// answer has none, and may be as old as metadataAge.
func (c *client) look(ctx context.Context, names []string) ([]topicState, error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.RequestTimeout)
	defer cancel()
	answer, err := c.transport.RoundTrip(ctx, c.api.Addr, &topicsRequest{clientID: c.config.ClientID, names: names})
	if err != nil {
		return nil, err
	}
	if topics := answer.(*topicsAnswer).topics; topics != nil {
		return topics, nil
	}
	cached, err := c.api.Metadata(ctx, &kafka.MetadataRequest{Topics: names})
	if err != nil {
		return nil, err
	}
	topics := make([]topicState, len(cached.Topics))
	for i, t := range cached.Topics {
		topics[i] = topicState{name: t.Name, partitions: len(t.Partitions), err: t.Error}
	}
	return topics, nil
}

// ids returns the ids of those topics that there are.
func (c *client) ids(ctx context.Context, names []string) (map[string]topicID, error) {
	topics, err := c.look(ctx, names)
	if err != nil {
		return nil, fmt.Errorf("the topics' ids: %w", err)
	}
	ids := make(map[string]topicID, len(topics))
	for _, t := range topics {
		if t.err == nil {
			ids[t.name] = t.id
		}
	}
	return ids, nil
}

// remade tells whether a topic is another one now than that with the id. It is
// not while the topic is away or cannot be looked at.
func (c *client) remade(ctx context.Context, topic string, id topicID) bool {
	if id == (topicID{}) {
		return false
	}
	ids, err := c.ids(ctx, []string{topic})
	now, exists := ids[topic]
	return err == nil && exists && now != id
}

// known is what a membership knows of its topics.
type known struct {
	mu         sync.Mutex
	partitions map[string]int
	ids        map[string]topicID
	again      []string // topics that were made again since the beginning of Run
	lasts      map[string]beginning
}

// beginning is where a partition is to begin that the group has not begun.
type beginning struct {
	id topicID
	at int64
}

func newKnown() *known {
	return &known{partitions: map[string]int{}, ids: map[string]topicID{}, lasts: map[string]beginning{}}
}

// last returns the end of a partition when it was first looked at. What was
// written since then must not be skipped when the group could not be told.
func (k *known) last(partition string, id topicID, now int64) int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	b, seen := k.lasts[partition]
	if !seen || b.id != id {
		b = beginning{id, now}
		k.lasts[partition] = b
	}
	return b.at
}

// note tells whether a topic is another one than when it was last looked at, or
// has other partitions.
func (k *known) note(t topicState) (changed bool) {
	if t.err != nil || t.partitions == 0 {
		return false
	}
	changed = k.noteID(t.name, t.id)
	k.mu.Lock()
	defer k.mu.Unlock()
	if n := k.partitions[t.name]; n != 0 && n != t.partitions {
		changed = true
	}
	k.partitions[t.name] = t.partitions
	return changed
}

// noteID tells whether a topic is another one than when it was last looked at.
func (k *known) noteID(topic string, id topicID) (changed bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	last, seen := k.ids[topic]
	changed = seen && last != id && last != (topicID{})
	k.ids[topic] = id
	if changed && !slices.Contains(k.again, topic) {
		k.again = append(k.again, topic)
	}
	return changed
}

// madeAgain tells whether a topic was made again since the beginning of Run.
func (k *known) madeAgain(topic string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Contains(k.again, topic)
}

// watchOnce tells whether a topic is another one than when it was last looked
// at, or has other partitions. The first look is before joining, so that
// partitions which come between the look and the assignment are not missed.
func (m *membership) watchOnce(ctx context.Context) (changed bool) {
	topics, err := m.client.look(ctx, m.client.config.Topics)
	if err != nil {
		return false // the fetchers notice as well, and say so
	}
	for _, t := range topics {
		if m.known.note(t) {
			changed = true
		}
	}
	return changed
}
