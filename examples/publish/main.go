// Publish sends a payment to the example workers, as a producer has to: with an
// id of the event's own, which is the same in each retry, and confirmed.
//
//	go run ./examples/publish kafka p-1 '{"account": "alice", "cents": 250}'
//	go run ./examples/publish rabbitmq p-1 '{"account": "alice", "cents": 250}'
//
// It creates the topic (TOPIC) or the queue (QUEUE), "payments" by default, when
// it is missing. The server is at KAFKA_BROKERS or AMQP_URL, else the one that
// `make services` has started. When it fails, run it again.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/segmentio/kafka-go"

	"github.com/ackafter/ackafter/examples/internal/local"
)

// payment is an event. Account is the key: the payments of one keep their order.
type payment struct {
	ID      string
	Account string
	Body    []byte
}

func main() {
	log.SetFlags(0)
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		log.Fatal("publish: ", err)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 3 {
		return errors.New("usage: publish kafka|rabbitmq ID BODY")
	}
	var body struct{ Account string }
	if err := json.Unmarshal([]byte(args[2]), &body); err != nil {
		return fmt.Errorf("the body: %w", err)
	}
	p := payment{ID: args[1], Account: body.Account, Body: []byte(args[2])}
	switch args[0] {
	case "kafka":
		return toKafka(ctx, strings.Split(local.Getenv("KAFKA_BROKERS"), ","), cmp.Or(os.Getenv("TOPIC"), "payments"), p)
	case "rabbitmq":
		return toRabbitMQ(ctx, local.Getenv("AMQP_URL"), cmp.Or(os.Getenv("QUEUE"), "payments"), p)
	}
	return fmt.Errorf("no broker is called %q: kafka and rabbitmq are", args[0])
}

// toKafka returns when all replicas that are in sync have the message.
func toKafka(ctx context.Context, brokers []string, topic string, p payment) error {
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	client := &kafka.Client{Addr: kafka.TCP(brokers...), Transport: transport}
	created, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{
		Topics: []kafka.TopicConfig{{Topic: topic, NumPartitions: 3, ReplicationFactor: 1}}, // of one broker
	})
	if err == nil {
		err = created.Errors[topic]
	}
	if err != nil && !errors.Is(err, kafka.TopicAlreadyExists) {
		return err
	}
	writer := &kafka.Writer{
		Addr: client.Addr, Topic: topic, Transport: transport,
		RequiredAcks: kafka.RequireAll, Balancer: kafka.Murmur2Balancer{}, BatchTimeout: time.Millisecond,
	}
	err = writer.WriteMessages(ctx, kafka.Message{
		Key:     []byte(p.Account),
		Value:   p.Body,
		Headers: []kafka.Header{{Key: "message-id", Value: []byte(p.ID)}},
	})
	return errors.Join(err, writer.Close())
}

// toRabbitMQ returns when the queue has the message.
func toRabbitMQ(ctx context.Context, url, queue string, p payment) error {
	conn, err := amqp.Dial(url)
	if err != nil {
		return err
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if _, err := ch.QueueDeclare(queue, true, false, false, false, nil); err != nil {
		return err
	}
	if err := ch.Confirm(false); err != nil {
		return err
	}
	confirmation, err := ch.PublishWithDeferredConfirmWithContext(ctx, "", queue, false, false, amqp.Publishing{
		MessageId: p.ID, ContentType: "application/json", DeliveryMode: amqp.Persistent, Body: p.Body,
	})
	if err != nil {
		return err
	}
	confirmed, err := confirmation.WaitContext(ctx)
	if err == nil && !confirmed {
		err = errors.New("the broker has refused the message")
	}
	return err
}
