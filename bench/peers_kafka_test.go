package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	kafkago "github.com/segmentio/kafka-go"

	"github.com/ackafter/ackafter/brokers/kafka"
	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/inbox"
)

// perPartition is how many messages each of the two partitions has.
const perPartition = 10

// A worker holds the first message of each partition when another one joins, takes
// one of the partitions over, and commits all of it. Then the first worker is done
// with its old message. The Reader of kafka-go (0.4.51) commits that as a member
// of the new generation, and the partition's offset goes back.
func TestKafkaReaderCommitsAnOldMessageAfterARebalance(t *testing.T) {
	t.Run("kafka-go", func(t *testing.T) {
		w := newTopic(t)
		first := w.reader()
		held := map[int]kafkago.Message{}
		for len(held) < 2 {
			m, err := first.FetchMessage(w.ctx)
			w.must(err)
			if _, ok := held[m.Partition]; !ok {
				held[m.Partition] = m
			}
		}
		second := w.reader()
		var last kafkago.Message
		for last.Offset < perPartition-1 {
			var err error
			last, err = second.FetchMessage(w.ctx)
			w.must(err)
		}
		w.must(second.CommitMessages(w.ctx, last))
		w.requireCommitted(last.Partition, perPartition)
		w.must(first.CommitMessages(w.ctx, held[last.Partition]))
		w.requireCommitted(last.Partition, 1)
	})
	t.Run("ackafter", func(t *testing.T) {
		w := newTopic(t)
		done := make(chan struct{}, 2)
		var held atomic.Int32
		stopFirst := w.worker(func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
			if held.Add(1) <= 2 { // until the partition is taken away
				done <- struct{}{}
				<-ctx.Done()
			}
			return w.note(ctx, tx, m)
		})
		for range 2 {
			w.wait(done)
		}
		stopSecond := w.worker(w.note)
		taken := -1
		w.eventually("the second worker has a whole partition", func() bool {
			for p, offset := range w.committed() {
				if offset == perPartition {
					taken = p
				}
			}
			return taken >= 0
		})
		w.eventually("all is committed", func() bool {
			committed := w.committed()
			if committed[taken] != perPartition {
				t.Errorf("the offset of the partition that was taken over went back to %d", committed[taken])
			}
			return committed[1-taken] == perPartition
		})
		stopFirst()
		stopSecond()
		if n := w.count("select count(*) from $schema.notes"); n != 2*perPartition {
			t.Errorf("%d effects of %d messages", n, 2*perPartition)
		}
	})
}

// topic is one with two partitions that are filled, and a group.
type topic struct {
	*peerWorld
	kafka apacheKafka
	name  string
}

func newTopic(t *testing.T) *topic {
	t.Helper()
	w := &topic{peerWorld: newPeerWorld(t), name: "peers-" + strings.ToLower(rand.Text()[:10])}
	k, err := newKafka()
	w.must(err)
	w.kafka = k.(apacheKafka)
	w.must(w.db.exec(w.ctx, w.schema, "create table $schema.notes (id text primary key)"))
	w.must(w.kafka.create(w.ctx, w.name, 2))
	t.Cleanup(func() { w.must(w.kafka.delete(context.Background(), w.name)) })
	writer := &kafkago.Writer{Addr: kafkago.TCP(w.kafka.brokers...), Topic: w.name, RequiredAcks: kafkago.RequireAll,
		BatchTimeout: time.Millisecond, Balancer: kafkago.BalancerFunc(func(m kafkago.Message, _ ...int) int { return int(m.Value[0] - '0') })}
	defer func() { w.must(writer.Close()) }()
	var ms []kafkago.Message
	for n := range 2 * perPartition {
		ms = append(ms, kafkago.Message{Value: []byte(strconv.Itoa(n % 2)),
			Headers: []kafkago.Header{{Key: "message-id", Value: fmt.Append(nil, n)}}})
	}
	w.must(writer.WriteMessages(w.ctx, ms...))
	return w
}

func (w *topic) reader() *kafkago.Reader {
	r := kafkago.NewReader(kafkago.ReaderConfig{Brokers: w.kafka.brokers, GroupID: w.name, Topic: w.name, StartOffset: kafkago.FirstOffset,
		HeartbeatInterval: 200 * time.Millisecond, MaxWait: 200 * time.Millisecond})
	w.t.Cleanup(func() { w.must(r.Close()) })
	return r
}

func (w *topic) note(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
	_, err := tx.Exec(ctx, strings.ReplaceAll("insert into $schema.notes values ($1)", "$schema", w.schema), m.ID)
	return err
}

// worker runs one of this library, until stop is called.
func (w *topic) worker(handle consumer.HandlerFunc[pgx.Tx]) (stop func()) {
	w.t.Helper()
	source, err := kafka.New(kafka.Config{Brokers: w.kafka.brokers, Group: w.name, Topics: []string{w.name},
		HeartbeatInterval: 200 * time.Millisecond})
	w.must(err)
	in, err := inbox.NewWithConfig(w.db.pool, inbox.Config{Schema: w.schema})
	w.must(err)
	runner, err := consumer.New(consumer.Config[pgx.Tx]{Subscriber: subscriber, Source: source, Inbox: in,
		MessageID: consumer.HeaderID("message-id"), DrainTimeout: 200 * time.Millisecond, Logger: discard(), Handler: handle})
	w.must(err)
	ctx, cancel := context.WithCancel(w.ctx)
	var running sync.WaitGroup
	running.Go(func() {
		if err := runner.Run(ctx); err != nil {
			w.t.Error(err)
		}
	})
	return func() { cancel(); running.Wait() }
}

func (w *topic) committed() map[int]int64 {
	w.t.Helper()
	r, err := w.kafka.client().OffsetFetch(w.ctx, &kafkago.OffsetFetchRequest{GroupID: w.name, Topics: map[string][]int{w.name: {0, 1}}})
	w.must(err)
	offsets := map[int]int64{}
	for _, p := range r.Topics[w.name] {
		w.must(p.Error)
		offsets[p.Partition] = p.CommittedOffset
	}
	return offsets
}

func (w *topic) requireCommitted(partition int, want int64) {
	w.t.Helper()
	if got := w.committed()[partition]; got != want {
		w.t.Errorf("the committed offset is %d, and used to be %d", got, want)
	}
}

func (w *topic) eventually(what string, is func() bool) {
	w.t.Helper()
	for !is() {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-w.ctx.Done():
			w.t.Fatalf("never: %s", what)
		}
	}
}
