//go:build unix

package servers

import (
	"context"
	"errors"
	"testing"

	"github.com/segmentio/kafka-go"
)

func TestKafkaKeepsMessagesAndPort(t *testing.T) {
	needServers(t)
	t.Parallel()
	ctx := testContext(t)
	server, err := StartKafka(ctx, t.TempDir(), KafkaConfig{})
	var missing *MissingProgramError
	if errors.As(err, &missing) {
		t.Skipf("real Kafka was not tested: %v", err)
	}
	if err != nil {
		t.Fatalf("StartKafka: %v", err)
	}
	closeAtEnd(t, server)
	url := server.URL()
	client := &kafka.Client{Addr: kafka.TCP(server.Brokers()...), Transport: newTransport(t)}
	produceOne(ctx, t, client, "kept")

	for _, end := range []struct {
		name string
		call func(context.Context) error
	}{{"Kill", server.Kill}, {"Stop", server.Stop}} {
		if err := end.call(ctx); err != nil {
			t.Fatalf("%s: %v", end.name, err)
		}
		if err := PingKafka(ctx, url); err == nil {
			t.Errorf("the server answers after %s", end.name)
		}
		if err := server.Start(ctx); err != nil {
			t.Fatalf("Start after %s: %v", end.name, err)
		}
		if server.URL() != url {
			t.Errorf("after %s the address is %s, want %s", end.name, server.URL(), url)
		}
		client.Transport = newTransport(t)
		offsets, err := client.ListOffsets(ctx, &kafka.ListOffsetsRequest{
			Topics: map[string][]kafka.OffsetRequest{"kept": {kafka.LastOffsetOf(0)}},
		})
		if err != nil {
			t.Fatalf("ListOffsets after %s: %v", end.name, err)
		}
		if p := offsets.Topics["kept"][0]; p.Error != nil || p.LastOffset != 1 {
			t.Errorf("after %s the end is %d (%v), want 1", end.name, p.LastOffset, p.Error)
		}
	}
}

// newTransport returns a transport that is closed at the end of the test.
func newTransport(t *testing.T) *kafka.Transport {
	transport := &kafka.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

func produceOne(ctx context.Context, t *testing.T, client *kafka.Client, topic string) {
	t.Helper()
	created, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{
		Topics: []kafka.TopicConfig{{Topic: topic, NumPartitions: 1, ReplicationFactor: 1}},
	})
	if err != nil || created.Errors[topic] != nil {
		t.Fatalf("CreateTopics: %v, %v", err, created)
	}
	produced, err := client.Produce(ctx, &kafka.ProduceRequest{
		Topic: topic, RequiredAcks: kafka.RequireAll,
		Records: kafka.NewRecordReader(kafka.Record{Value: kafka.NewBytes([]byte("message"))}),
	})
	if err != nil || produced.Error != nil {
		t.Fatalf("Produce: %v, %v", err, produced)
	}
}
