package kafka_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/ackafter/ackafter/brokers/kafka"
	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/internal/kafkatest"
)

// BenchmarkDrain reads a backlog of messages of 1 KiB: through a Source, and
// through kafka-go's own Reader.
func BenchmarkDrain(b *testing.B) {
	const messages = 200_000
	topic := kafkatest.New(b, kafkatest.Brokers(b), 1)
	batch := make([]kafkago.Message, 500)
	for i := range batch {
		batch[i].Value = bytes.Repeat([]byte{byte(i)}, 1024)
	}
	for range messages / len(batch) {
		topic.Write(0, 0, batch...)
	}
	rate := func(b *testing.B, read func(group string)) {
		for b.Loop() {
			began := time.Now()
			read(topic.Group + b.Name() + time.Now().Format(time.RFC3339Nano))
			b.ReportMetric(messages/time.Since(began).Seconds(), "msg/s")
		}
	}
	b.Run("source", func(b *testing.B) {
		rate(b, func(group string) {
			config := topic.Config()
			config.Group, config.CommitInterval = group, time.Second
			drain(b, config, messages)
		})
	})
	b.Run("reader", func(b *testing.B) {
		rate(b, func(group string) {
			r := kafkago.NewReader(kafkago.ReaderConfig{
				Brokers: topic.Brokers, GroupID: group, Topic: topic.Name, CommitInterval: time.Second, MaxBytes: 1 << 20,
			})
			for range messages {
				m, err := r.FetchMessage(b.Context())
				if err == nil {
					err = r.CommitMessages(b.Context(), m)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			_ = r.Close()
		})
	})
}

func drain(b *testing.B, config kafka.Config, messages int) {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	source, err := kafka.New(config)
	if err != nil {
		b.Fatal(err)
	}
	err = source.Run(ctx, func(ctx context.Context, s consumer.Stream) error {
		for n := 0; n < messages; {
			ms, err := s.Next(ctx, 256)
			if err != nil {
				return err
			}
			if err := s.Ack(ctx, ms...); err != nil {
				return err
			}
			n += len(ms)
		}
		cancel()
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
}
