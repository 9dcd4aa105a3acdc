// Package kafkatest has what the tests of brokers/kafka do past the source: a
// topic of a test's own, a way to write to it, and connections to cut. The
// tests with the real Kafka use it, and those with the fake one, which are in a
// module of their own (internal/kfaketest).
package kafkatest

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"slices"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/ackafter/ackafter/brokers/kafka"
	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/internal/servers"
)

// Limit is how long a test waits for anything.
const Limit = 30 * time.Second

// Brokers returns the addresses of the shared brokers. Without any the test
// fails, unless it is a short run, or there is no Java for them here.
func Brokers(t testing.TB) []string {
	t.Helper()
	if testing.Short() {
		t.Skip("needs Kafka")
	}
	found, err := servers.KafkaBrokers()
	if err == nil {
		return found
	}
	if reason := servers.Missing("KAFKA_BROKERS"); reason != "" && os.Getenv("CI") != "true" {
		t.Skipf("real Kafka was not tested: %s", reason)
	}
	t.Fatal(err)
	return nil
}

// Topic is a topic and the name of a group, both of one test's own.
type Topic struct {
	T       testing.TB
	Brokers []string
	Name    string
	Group   string
	API     *kafkago.Client
}

// New creates a topic, which is deleted at the end of the test.
func New(t testing.TB, brokers []string, partitions int) *Topic {
	t.Helper()
	transport := &kafkago.Transport{MetadataTTL: 200 * time.Millisecond}
	c := &Topic{
		T: t, Brokers: brokers, Name: "ackafter-test-" + rand.Text(), Group: "ackafter-test-" + rand.Text(),
		API: &kafkago.Client{Addr: kafkago.TCP(brokers...), Transport: transport, Timeout: Limit},
	}
	t.Cleanup(transport.CloseIdleConnections)
	c.Create(partitions)
	t.Cleanup(func() {
		_, _ = c.API.DeleteTopics(context.Background(), &kafkago.DeleteTopicsRequest{Topics: []string{c.Name}})
	})
	return c
}

// Create creates the topic, with large messages allowed.
func (c *Topic) Create(partitions int) {
	c.T.Helper()
	if err := c.tryCreate(partitions); err != nil {
		c.T.Fatal(err)
	}
}

func (c *Topic) tryCreate(partitions int) error {
	created, err := c.API.CreateTopics(c.T.Context(), &kafkago.CreateTopicsRequest{
		Topics: []kafkago.TopicConfig{{Topic: c.Name, NumPartitions: partitions, ReplicationFactor: 1, ConfigEntries: []kafkago.ConfigEntry{
			{ConfigName: "max.message.bytes", ConfigValue: "4000000"},
		}}},
	})
	if err == nil {
		err = created.Errors[c.Name]
	}
	return err
}

// Publish writes messages, spread over the partitions by their keys, and
// returns when they are stored.
func (c *Topic) Publish(ctx context.Context, ms ...*consumer.Message) error {
	meta, err := c.API.Metadata(ctx, &kafkago.MetadataRequest{Topics: []string{c.Name}})
	if err != nil {
		return err
	}
	partitions := len(meta.Topics[0].Partitions)
	if partitions == 0 {
		return errors.New("the topic has no partitions")
	}
	byPartition := map[int][]kafkago.Message{}
	for _, m := range ms {
		r := kafkago.Message{Time: m.Time, Key: m.Key, Value: m.Body}
		for _, h := range m.Headers {
			r.Headers = append(r.Headers, kafkago.Header{Key: h.Key, Value: h.Value})
		}
		sum := 0
		for _, b := range m.Key {
			sum += int(b)
		}
		byPartition[sum%partitions] = append(byPartition[sum%partitions], r)
	}
	for partition, records := range byPartition {
		for batch := range slices.Chunk(records, 100) {
			if err := c.Produce(ctx, partition, 0, batch...); err != nil {
				return err
			}
		}
	}
	return nil
}

// Produce writes one batch. A topic that is new has no leader for a moment.
func (c *Topic) Produce(ctx context.Context, partition int, codec kafkago.Compression, ms ...kafkago.Message) error {
	for {
		var records []kafkago.Record // they can be read once
		for _, m := range ms {
			records = append(records, kafkago.Record{
				Time: m.Time, Key: bytesOf(m.Key), Value: bytesOf(m.Value), Headers: m.Headers,
			})
		}
		res, err := c.API.Produce(ctx, &kafkago.ProduceRequest{
			Topic: c.Name, Partition: partition, RequiredAcks: kafkago.RequireAll,
			Compression: codec, Records: kafkago.NewRecordReader(records...),
		})
		if err == nil {
			err = res.Error
		}
		var passing kafkago.Error
		final := errors.As(err, &passing) && !passing.Temporary()
		if err == nil || final || ctx.Err() != nil {
			return err
		}
	}
}

// bytesOf keeps null and empty apart.
func bytesOf(b []byte) kafkago.Bytes {
	if b == nil {
		return nil
	}
	return kafkago.NewBytes(b)
}

// Grow gives the topic more partitions.
func (c *Topic) Grow(partitions int) {
	c.T.Helper()
	grown, err := c.API.CreatePartitions(c.T.Context(), &kafkago.CreatePartitionsRequest{
		Topics: []kafkago.TopicPartitionsConfig{{Name: c.Name, Count: int32(partitions)}},
	})
	if err == nil {
		err = grown.Errors[c.Name]
	}
	if err != nil {
		c.T.Fatal(err)
	}
}

// Commit sets what the group, which must have no members, has committed.
func (c *Topic) Commit(partition int, offset int64) {
	c.T.Helper()
	c.CommitAs(partition, offset, "")
}

// Configure sets a configuration of the topic.
func (c *Topic) Configure(name, value string) {
	c.T.Helper()
	res, err := c.API.IncrementalAlterConfigs(c.T.Context(), &kafkago.IncrementalAlterConfigsRequest{
		Resources: []kafkago.IncrementalAlterConfigsRequestResource{{
			ResourceType: kafkago.ResourceTypeTopic, ResourceName: c.Name,
			Configs: []kafkago.IncrementalAlterConfigsRequestConfig{{
				Name: name, Value: value, ConfigOperation: kafkago.ConfigOperationSet,
			}},
		}},
	})
	if err == nil {
		err = res.Resources[0].Error
	}
	if err != nil {
		c.T.Fatal(err)
	}
}

// Send writes messages with the given bodies to a partition.
func (c *Topic) Send(partition int, bodies ...string) {
	c.T.Helper()
	ms := make([]kafkago.Message, len(bodies))
	for i, body := range bodies {
		ms[i].Value = []byte(body)
	}
	c.Write(partition, 0, ms...)
}

// Write writes messages to a partition, as one batch.
func (c *Topic) Write(partition int, codec kafkago.Compression, ms ...kafkago.Message) {
	c.T.Helper()
	ctx, cancel := context.WithTimeout(c.T.Context(), Limit)
	defer cancel()
	if err := c.Produce(ctx, partition, codec, ms...); err != nil {
		c.T.Fatal(err)
	}
}

// Committed returns what the group has committed for a partition, or -1.
func (c *Topic) Committed(partition int) int64 {
	c.T.Helper()
	at, _ := c.CommittedAs(partition)
	return at
}

// CommittedAs is Committed with the metadata.
func (c *Topic) CommittedAs(partition int) (offset int64, metadata string) {
	c.T.Helper()
	got, err := c.API.OffsetFetch(c.T.Context(), &kafkago.OffsetFetchRequest{
		GroupID: c.Group, Topics: map[string][]int{c.Name: {partition}},
	})
	if err == nil {
		err = got.Error
	}
	if errors.Is(err, kafkago.GroupIdNotFound) {
		return -1, ""
	}
	if err != nil {
		c.T.Fatal(err)
	}
	p := got.Topics[c.Name][0]
	if p.Error != nil {
		c.T.Fatal(p.Error)
	}
	return p.CommittedOffset, p.Metadata
}

// Config is quick to notice everything.
func (c *Topic) Config() kafka.Config {
	return kafka.Config{
		Brokers: c.Brokers, Group: c.Group, Topics: []string{c.Name},
		HeartbeatInterval: 50 * time.Millisecond, SessionTimeout: 6 * time.Second,
		CommitInterval: 20 * time.Millisecond, WatchInterval: 200 * time.Millisecond,
		BackoffMin: time.Millisecond, BackoffMax: 50 * time.Millisecond,
		Logger: slog.New(slog.DiscardHandler),
	}
}
