package kafkatest

import (
	"errors"

	kafkago "github.com/segmentio/kafka-go"
)

// Delete deletes the topic. It may take the brokers a moment.
func (c *Topic) Delete() {
	c.T.Helper()
	deleted, err := c.API.DeleteTopics(c.T.Context(), &kafkago.DeleteTopicsRequest{Topics: []string{c.Name}})
	if err == nil {
		err = deleted.Errors[c.Name]
	}
	if err != nil {
		c.T.Fatal(err)
	}
}

// Remake deletes the topic, and makes another of the same name.
func (c *Topic) Remake(partitions int) {
	c.T.Helper()
	c.Delete()
	Eventually(c.T, "the brokers have deleted the topic", func() bool { return c.TryCreate(partitions) })
}

// TryCreate tells whether it has created the topic: not while there is one.
func (c *Topic) TryCreate(partitions int) bool {
	c.T.Helper()
	err := c.tryCreate(partitions)
	if err != nil && !errors.Is(err, kafkago.TopicAlreadyExists) {
		c.T.Fatal(err)
	}
	return err == nil
}

// CommitAs is Commit with metadata.
func (c *Topic) CommitAs(partition int, offset int64, metadata string) {
	c.T.Helper()
	res, err := c.API.OffsetCommit(c.T.Context(), &kafkago.OffsetCommitRequest{
		GroupID: c.Group, GenerationID: -1,
		Topics: map[string][]kafkago.OffsetCommit{c.Name: {{Partition: partition, Offset: offset, Metadata: metadata}}},
	})
	if err == nil {
		err = res.Topics[c.Name][0].Error
	}
	if err != nil {
		c.T.Fatal(err)
	}
}
