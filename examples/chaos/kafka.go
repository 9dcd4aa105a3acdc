package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/ackafter/ackafter/brokers/kafka"
	"github.com/ackafter/ackafter/consumer"
)

type apacheKafka struct{}

func (apacheKafka) variable() string { return "KAFKA_BROKERS" }

// kafkaPartitions is more than one for each worker, so that those of a worker
// that is killed go to several.
const kafkaPartitions = 6

// source notices a dead worker after 2 seconds, which the brokers must allow
// (group.min.session.timeout.ms): each kill takes that long.
func (apacheKafka) source(url, topic string, _ int) (consumer.Source, error) {
	return kafka.New(kafka.Config{
		Brokers: strings.Split(url, ","), Group: topic, Topics: []string{topic},
		SessionTimeout: 2 * time.Second, HeartbeatInterval: 200 * time.Millisecond, RebalanceTimeout: 20 * time.Second,
		CommitInterval: 200 * time.Millisecond,
	})
}

func (apacheKafka) messageID(m *consumer.Message) (string, error) {
	return consumer.HeaderID(kafkaIDHeader)(m)
}

const kafkaIDHeader = "message-id"

// kafkaTopic is a topic, and a group of the same name.
type kafkaTopic struct {
	name      string
	api       *kafkago.Client
	transport *kafkago.Transport
	writer    *kafkago.Writer
}

func (apacheKafka) open(ctx context.Context, url, name string) (queue, error) {
	transport := &kafkago.Transport{}
	addr := kafkago.TCP(strings.Split(url, ",")...)
	q := &kafkaTopic{
		name: name, transport: transport,
		api: &kafkago.Client{Addr: addr, Transport: transport, Timeout: 10 * time.Second},
		writer: &kafkago.Writer{
			Addr: addr, Topic: name, Transport: transport, Balancer: &kafkago.Hash{},
			RequiredAcks: kafkago.RequireAll, BatchTimeout: time.Millisecond,
		},
	}
	created, err := q.api.CreateTopics(ctx, &kafkago.CreateTopicsRequest{
		Topics: []kafkago.TopicConfig{{Topic: name, NumPartitions: kafkaPartitions, ReplicationFactor: 1}},
	})
	if err == nil {
		err = created.Errors[name]
	}
	if err != nil {
		return nil, fmt.Errorf("create the topic: %w", err)
	}
	return q, nil
}

func (q *kafkaTopic) publish(ctx context.Context, orders []order) error {
	ms := make([]kafkago.Message, len(orders))
	for i, o := range orders {
		body, err := json.Marshal(o)
		if err != nil {
			return err
		}
		ms[i] = kafkago.Message{
			Key: strconv.AppendInt(nil, int64(o.From), 10), Value: body,
			Headers: []kafkago.Header{{Key: kafkaIDHeader, Value: []byte(o.ID)}},
		}
	}
	if err := q.writer.WriteMessages(ctx, ms...); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	return nil
}

// state counts as ready what is not committed.
func (q *kafkaTopic) state() (ready, consumers int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	ends, err := q.ends(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("look at the topic: %w", err)
	}
	committed, err := q.committed(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("look at the group: %w", err)
	}
	for partition, end := range ends {
		ready += int(end - max(committed[partition], 0))
	}
	groups, err := q.api.DescribeGroups(ctx, &kafkago.DescribeGroupsRequest{GroupIDs: []string{q.name}})
	if err != nil {
		return 0, 0, fmt.Errorf("look at the group: %w", err)
	}
	return ready, len(groups.Groups[0].Members), nil
}

func (q *kafkaTopic) ends(ctx context.Context) (ends [kafkaPartitions]int64, err error) {
	var wanted []kafkago.OffsetRequest
	for partition := range kafkaPartitions {
		wanted = append(wanted, kafkago.LastOffsetOf(partition))
	}
	listed, err := q.api.ListOffsets(ctx, &kafkago.ListOffsetsRequest{Topics: map[string][]kafkago.OffsetRequest{q.name: wanted}})
	if err != nil {
		return ends, err
	}
	for _, p := range listed.Topics[q.name] {
		ends[p.Partition], err = p.LastOffset, errors.Join(err, p.Error)
	}
	return ends, err
}

func (q *kafkaTopic) committed(ctx context.Context) (offsets [kafkaPartitions]int64, err error) {
	var partitions []int
	for partition := range kafkaPartitions {
		partitions = append(partitions, partition)
	}
	got, err := q.api.OffsetFetch(ctx, &kafkago.OffsetFetchRequest{GroupID: q.name, Topics: map[string][]int{q.name: partitions}})
	if err == nil {
		err = got.Error
	}
	if errors.Is(err, kafkago.GroupIdNotFound) {
		return offsets, nil
	}
	if err != nil {
		return offsets, err
	}
	for _, p := range got.Topics[q.name] {
		offsets[p.Partition], err = p.CommittedOffset, errors.Join(err, p.Error)
	}
	return offsets, err
}

// delete leaves the group to the broker, which forgets it with the topic's
// offsets, if a worker that was killed is still a member.
func (q *kafkaTopic) delete(ctx context.Context) error {
	defer q.transport.CloseIdleConnections()
	closed := q.writer.Close()
	deleted, err := q.api.DeleteTopics(ctx, &kafkago.DeleteTopicsRequest{Topics: []string{q.name}})
	if err == nil {
		err = deleted.Errors[q.name]
	}
	_, _ = q.api.DeleteGroups(ctx, &kafkago.DeleteGroupsRequest{GroupIDs: []string{q.name}})
	return errors.Join(closed, err)
}
