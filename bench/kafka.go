package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	wkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	kafkago "github.com/segmentio/kafka-go"

	"github.com/ackafter/ackafter/brokers/kafka"
	"github.com/ackafter/ackafter/consumer"
)

// apacheKafka has a topic with a partition for each worker.
type apacheKafka struct{ brokers []string }

func newKafka() (broker, error) {
	addresses := os.Getenv("KAFKA_BROKERS")
	if addresses == "" {
		return nil, errors.New("KAFKA_BROKERS is not set")
	}
	return apacheKafka{strings.Split(addresses, ",")}, nil
}

func (k apacheKafka) client() *kafkago.Client {
	return &kafkago.Client{Addr: kafkago.TCP(k.brokers...), Timeout: 30 * time.Second}
}

func (k apacheKafka) create(ctx context.Context, topic string, workers int) error {
	r, err := k.client().CreateTopics(ctx, &kafkago.CreateTopicsRequest{
		Topics: []kafkago.TopicConfig{{Topic: topic, NumPartitions: workers, ReplicationFactor: 1}}})
	if err != nil {
		return err
	}
	return r.Errors[topic]
}

func (k apacheKafka) delete(ctx context.Context, topic string) error {
	r, err := k.client().DeleteTopics(ctx, &kafkago.DeleteTopicsRequest{Topics: []string{topic}})
	if err != nil {
		return err
	}
	return r.Errors[topic]
}

// version is the level of the cluster's metadata: no request of Kafka's protocol
// tells the release.
func (k apacheKafka) version(context.Context) (string, error) {
	b := sarama.NewBroker(k.brokers[0])
	if err := b.Open(sarama.NewConfig()); err != nil {
		return "", err
	}
	defer func() { _ = b.Close() }()
	r, err := b.ApiVersions(&sarama.ApiVersionsRequest{Version: 3, ClientSoftwareName: "bench", ClientSoftwareVersion: "1"})
	if err != nil {
		return "", err
	}
	for _, f := range r.FinalizedFeatures {
		if f.Name == "metadata.version" {
			return fmt.Sprintf("Apache Kafka (metadata.version level %d)", f.MaxVersionLevel), nil
		}
	}
	return "Apache Kafka", nil
}

func (k apacheKafka) publish(ctx context.Context, topic string, orders []order) error {
	w := &kafkago.Writer{Addr: kafkago.TCP(k.brokers...), Topic: topic, RequiredAcks: kafkago.RequireAll,
		Balancer: &kafkago.Hash{}, BatchSize: 500, BatchTimeout: time.Millisecond, BatchBytes: 10 << 20}
	defer func() { _ = w.Close() }()
	for len(orders) > 0 {
		n := min(len(orders), 2000)
		ms := make([]kafkago.Message, n)
		for i, o := range orders[:n] {
			ms[i] = kafkago.Message{Key: []byte(o.key()), Value: o.body(), Headers: []kafkago.Header{{Key: "message-id", Value: []byte(o.ID)}}}
		}
		if err := w.WriteMessages(ctx, ms...); err != nil {
			return err
		}
		orders = orders[n:]
	}
	return nil
}

func (k apacheKafka) source(topic string) (consumer.Source, consumer.IDFunc, error) {
	s, err := kafka.New(kafka.Config{Brokers: k.brokers, Group: topic, Topics: []string{topic}, Window: prefetch})
	return s, consumer.HeaderID("message-id"), err
}

// kafkaFeed is the partition of a worker. One reader reads all of them.
type kafkaFeed struct {
	reader *kafkago.Reader
	ready  chan delivery
}

func (k apacheKafka) feeds(ctx context.Context, topic string, workers int) ([]feed, error) {
	reader := kafkago.NewReader(kafkago.ReaderConfig{Brokers: k.brokers, GroupID: topic, Topic: topic,
		MinBytes: 1, MaxBytes: 10 << 20, QueueCapacity: prefetch,
		MaxWait:        500 * time.Millisecond, // Close waits for it
		CommitInterval: time.Second, StartOffset: kafkago.FirstOffset})
	var feeds []feed
	var readies []chan delivery
	for range workers {
		ready := make(chan delivery, prefetch)
		readies = append(readies, ready)
		feeds = append(feeds, &kafkaFeed{reader, ready})
	}
	go func() {
		defer func() {
			for _, r := range readies {
				close(r)
			}
		}()
		for {
			m, err := reader.FetchMessage(ctx)
			if err != nil {
				return
			}
			select {
			case readies[m.Partition%workers] <- delivery{m.Value, m}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return feeds, nil
}

func (f *kafkaFeed) messages() <-chan delivery { return f.ready }

func (f *kafkaFeed) ack(ctx context.Context, last delivery, _ bool) error {
	return f.reader.CommitMessages(ctx, last.raw.(kafkago.Message)) // once a second, that is
}

func (f *kafkaFeed) close() { _ = f.reader.Close() }

func (k apacheKafka) watermill(ctx context.Context, topic string, _ int, handle func(context.Context, []byte) error) error {
	cfg := wkafka.DefaultSaramaSubscriberConfig()
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	return runRouter(ctx, 1, func(_ int, router *message.Router) error { // which has a goroutine for each partition
		sub, err := wkafka.NewSubscriber(wkafka.SubscriberConfig{Brokers: k.brokers, ConsumerGroup: topic,
			Unmarshaler: wkafka.DefaultMarshaler{}, OverwriteSaramaConfig: cfg}, watermill.NopLogger{})
		if err != nil {
			return err
		}
		addHandler(router, "h", topic, sub, handle)
		return nil
	})
}
