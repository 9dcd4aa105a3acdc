package kafka_test

import (
	"crypto/tls"
	"fmt"
	"os"
	"time"

	"github.com/segmentio/kafka-go/sasl/plain"

	"github.com/ackafter/ackafter/brokers/kafka"
	"github.com/ackafter/ackafter/consumer"
)

// Most workers need no more than this; the source goes into
// consumer.Config.Source. Kafka has no message id, so the worker says where its
// producers put theirs. Mistakes in the arguments come out of consumer.New.
func ExampleGroup() {
	source := kafka.Group([]string{"kafka-1:9092", "kafka-2:9092"}, "billing", "orders")
	_ = consumer.Config[any]{
		Subscriber: "billing",
		Source:     source,
		MessageID:  consumer.HeaderID("message-id"),
	}

	fmt.Println(kafka.Group([]string{"kafka-1"}, "billing", "orders").Validate())
	// Output: kafka: Config.Brokers[0] is "kafka-1": it must read host:port
}

// A cluster with TLS and a password. SASL is kafka-go's own type: a
// plain.Mechanism as here, or what scram.Mechanism(scram.SHA512, user, password)
// returns.
func ExampleNew() {
	source, err := kafka.New(kafka.Config{
		Brokers:  []string{"kafka-1.example.com:9093", "kafka-2.example.com:9093"},
		Group:    "billing",
		Topics:   []string{"orders", "refunds"},
		Start:    kafka.StartLast, // what is older than the group does not concern it
		TLS:      &tls.Config{MinVersion: tls.VersionTLS13},
		SASL:     plain.Mechanism{Username: "billing", Password: os.Getenv("KAFKA_PASSWORD")},
		ClientID: "billing on " + os.Getenv("HOSTNAME"),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(source.System(), source.Validate())
	// Output: kafka <nil>
}

// A handler that needs what only Kafka knows finds it in Message.Raw. That is nil
// in an attempt from failed_messages.
func ExampleRecord() {
	place := func(m *consumer.Message) string {
		r, ok := m.Raw.(*kafka.Record)
		if !ok {
			return m.Position
		}
		return fmt.Sprintf("partition %d of %s, offset %d", r.Partition, r.Topic, r.Offset)
	}
	fmt.Println(place(&consumer.Message{
		Position: "orders/3@1842",
		Raw:      &kafka.Record{Topic: "orders", Partition: 3, Offset: 1842},
	}))
	// Output: partition 3 of orders, offset 1842
}

// Where producers give no id, a message's place in the log is one. It catches what
// Kafka delivers twice, and nothing that a producer sends twice.
func ExampleRecord_LogPosition() {
	_ = consumer.Config[any]{MessageID: consumer.PositionID}

	fmt.Println(consumer.PositionID(&consumer.Message{
		Position: "orders/3@1842",
		Raw:      &kafka.Record{Topic: "orders", TopicID: "Jx0qDa3vTRyI3dh3xqOBlQ", Partition: 3, Offset: 1842},
	}))
	// Output: orders~Jx0qDa3vTRyI3dh3xqOBlQ/3@1842 <nil>
}

// How far each partition of this process is behind, for a metric or a health check.
func ExampleSource_Partitions() {
	source := kafka.Group([]string{"kafka-1:9092"}, "billing", "orders")
	report := func() {
		for _, p := range source.Partitions() {
			fmt.Printf("%s/%d is %d behind, and has moved last at %s\n", p.Topic, p.Partition, p.Lag, p.Advanced.Format(time.TimeOnly))
		}
	}
	report() // nothing: this process has no partitions until Run has joined the group
	// Output:
}

// What is set aside for good goes to a topic. It must exist.
func ExampleNewDeadLetter() {
	dead, err := kafka.NewDeadLetter(kafka.DeadLetterConfig{
		Brokers: []string{"kafka-1:9092", "kafka-2:9092"},
		Topic:   "billing.dead",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = consumer.Config[any]{DeadLetter: dead}
}
