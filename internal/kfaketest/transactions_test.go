package kfaketest

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ackafter/ackafter/internal/kafkatest"
)

// onBoth runs a test on the fake Kafka and on the real one.
func onBoth(t *testing.T, test func(t *testing.T, brokers []string)) {
	t.Run("kfake", func(t *testing.T) {
		t.Parallel()
		test(t, newCluster(t).ListenAddrs())
	})
	t.Run("Kafka", func(t *testing.T) {
		t.Parallel()
		test(t, kafkatest.Brokers(t))
	})
}

// producer is a transactional one.
type producer struct {
	t     *testing.T
	topic string
	*kgo.Client
}

func newProducer(t *testing.T, topic *kafkatest.Topic, id string) *producer {
	t.Helper()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(topic.Brokers...), kgo.TransactionalID(topic.Name+id),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return &producer{t, topic.Name, client}
}

func (p *producer) begin() {
	p.t.Helper()
	if err := p.BeginTransaction(); err != nil {
		p.t.Fatal(err)
	}
}

func (p *producer) write(values ...string) {
	p.t.Helper()
	for _, v := range values {
		r := &kgo.Record{Topic: p.topic, Value: []byte(v)}
		if err := p.ProduceSync(p.t.Context(), r).FirstErr(); err != nil {
			p.t.Fatal(err)
		}
	}
}

func (p *producer) finish(how kgo.TransactionEndTry) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), kafkatest.Limit)
	defer cancel()
	if err := p.EndTransaction(ctx, how); err != nil {
		p.t.Fatal(err)
	}
}

// writeTransactions interleaves a transaction that is committed with one that
// is aborted, and leaves a third one open.
func writeTransactions(t *testing.T, topic *kafkatest.Topic) (open *producer) {
	a, b, open := newProducer(t, topic, "a"), newProducer(t, topic, "b"), newProducer(t, topic, "open")
	a.begin()
	b.begin()
	a.write("a1", "a2")
	b.write("b1")
	topic.Send(0, "plain 1")
	a.write("a3")
	a.finish(kgo.TryCommit)
	b.write("b2")
	b.finish(kgo.TryAbort)
	b.begin()
	b.write("b3")
	b.finish(kgo.TryCommit)
	topic.Send(0, "plain 2")
	open.begin()
	open.write("open 1")
	topic.Send(0, "plain 3")
	return open
}

// committed is what a consumer of committed messages sees before the open
// transaction.
var committed = []string{"a1", "a2", "plain 1", "a3", "b3", "plain 2"}

func TestReadCommitted(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, brokers []string) {
		topic := kafkatest.New(t, brokers, 1)
		open := writeTransactions(t, topic)
		w := kafkatest.Start(t, topic.Config())
		w.Want(committed...)
		// Offsets 0 to 9: seven of data and three markers; the open one is 11.
		kafkatest.Eventually(t, "it stands before the open transaction, without a lag", func() bool {
			p := w.Source.Partitions()
			return len(p) == 1 && p[0].Committed == p[0].Settled && p[0].Lag == 0 && p[0].HighWatermark > p[0].Settled
		})
		open.finish(kgo.TryAbort)
		w.Want("plain 3")
		kafkatest.Eventually(t, "the last marker is passed", func() bool {
			p := w.Source.Partitions()
			return len(p) == 1 && p[0].Lag == 0 && p[0].Committed == p[0].HighWatermark
		})
		w.Stop()
		topic.Send(0, "new")
		kafkatest.Start(t, topic.Config()).Want("new")
	})
}

// From every offset on, a consumer sees what is left of the committed messages.
func TestReadCommittedFromAnywhere(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, brokers []string) {
		topic := kafkatest.New(t, brokers, 1)
		writeTransactions(t, topic).finish(kgo.TryAbort)
		w := kafkatest.Start(t, topic.Config())
		all := w.Take(len(committed) + 1)
		w.Stop()
		for from := range int64(12) {
			config := topic.Config()
			config.Group = fmt.Sprintf("%s-%d", topic.Group, from)
			at := *topic
			at.Group = config.Group
			at.Commit(0, from)
			w := kafkatest.Start(t, config)
			for _, d := range all {
				if offsetOf(d) >= from {
					w.Want(string(d.Body))
				}
			}
			w.Stop()
		}
	})
}

func TestReadUncommitted(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, brokers []string) {
		topic := kafkatest.New(t, brokers, 1)
		open := writeTransactions(t, topic)
		config := topic.Config()
		config.ReadUncommitted = true
		w := kafkatest.Start(t, config)
		var got []string
		for range 10 {
			d := w.Next()
			d.Ack()
			got = append(got, string(d.Body))
		}
		want := []string{"a1", "a2", "b1", "plain 1", "a3", "b2", "b3", "plain 2", "open 1", "plain 3"}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q, and no markers", got, want)
		}
		open.finish(kgo.TryAbort)
	})
}
