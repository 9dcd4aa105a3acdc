package e2e

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	amqp "github.com/rabbitmq/amqp091-go"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/brokers/kafka"
	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/internal/kafkatest"
)

// feed is where a test's messages go through, for tests that are the same for
// each broker.
type feed interface {
	// publish returns when the messages are stored. Those without an ID have none.
	publish(ms ...*consumer.Message)
	// parts returns a worker that reads them.
	parts() parts
	// stopDrained stops a worker once the broker has nothing left to deliver.
	stopDrained(k *worker)
}

// onBrokers runs a test with each broker, in a world of its own.
func onBrokers(t *testing.T, test func(t *testing.T, w *world, f feed)) {
	t.Run("rabbitmq", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		test(t, w, rabbitFeed{w})
	})
	t.Run("kafka", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		test(t, w, newKafkaFeed(t, w))
	})
}

func message(id, body string) *consumer.Message {
	return &consumer.Message{ID: id, Body: []byte(body)}
}

type rabbitFeed struct{ w *world }

func (f rabbitFeed) publish(ms ...*consumer.Message) {
	f.w.t.Helper()
	for _, m := range ms {
		f.w.q.publish(amqp.Publishing{MessageId: m.ID, Body: m.Body})
	}
}

func (f rabbitFeed) parts() parts { return f.w.asideParts() }

func (f rabbitFeed) stopDrained(k *worker) {
	f.w.t.Helper()
	eventually(f.w.t, "nothing is left", func() bool { return k.held() == 0 && f.w.q.ready() == 0 })
	k.stop()
	f.w.q.requireReady(0)
}

type kafkaFeed struct {
	w         *world
	topic     *kafkatest.Topic
	published int64
}

func newKafkaFeed(t *testing.T, w *world) *kafkaFeed {
	return &kafkaFeed{w: w, topic: kafkatest.New(t, kafkatest.Brokers(t), 1)}
}

func (f *kafkaFeed) publish(ms ...*consumer.Message) {
	f.w.t.Helper()
	records := make([]*consumer.Message, len(ms))
	for i, m := range ms {
		r := *m
		if m.ID != "" {
			r.Headers = append(slices.Clone(r.Headers), consumer.Header{Key: "id", Value: []byte(m.ID)})
		}
		records[i] = &r
	}
	require.NoError(f.w.t, f.topic.Publish(f.w.t.Context(), records...))
	f.published += int64(len(ms))
}

func (f *kafkaFeed) parts() parts {
	f.w.t.Helper()
	p := f.w.asideParts()
	p.MessageID = consumer.HeaderID("id")
	source, err := kafka.New(kafka.Config{
		Brokers: f.topic.Brokers, Group: f.topic.Group, Topics: []string{f.topic.Name},
		CommitInterval: 20 * time.Millisecond, Logger: f.w.log.logger(),
	})
	require.NoError(f.w.t, err)
	p.Source = source
	return p
}

func (f *kafkaFeed) stopDrained(k *worker) {
	f.w.t.Helper()
	eventually(f.w.t, "all is settled", func() bool { return k.held() == 0 && f.committed() == f.published })
	k.stop()
}

func (f *kafkaFeed) committed() int64 {
	res, err := f.topic.API.OffsetFetch(f.w.t.Context(), &kafkago.OffsetFetchRequest{
		GroupID: f.topic.Group, Topics: map[string][]int{f.topic.Name: {0}},
	})
	if err != nil || len(res.Topics[f.topic.Name]) != 1 {
		return -1
	}
	return res.Topics[f.topic.Name][0].CommittedOffset
}

// asideParts is parts with retries from failed_messages that a test can wait
// for.
func (w *world) asideParts() parts {
	p := w.parts()
	p.RetryPoll = 20 * time.Millisecond
	return p
}

// aside returns id, reason and attempts of what is set aside, and when it is
// tried again: "later" or "for good".
func (w *world) aside() []string {
	w.t.Helper()
	rows, err := w.db.Query(context.Background(), w.db.SQL(`select message_id || ' ' || reason || ' ' || attempts || ' '
		|| case when next_attempt_at is null then 'for good' else 'later' end from %s.failed_messages order by sequence`))
	require.NoError(w.t, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(w.t, err)
	return all
}

// requireOneEffect requires that the message has taken effect once, at that
// attempt, and is not set aside.
func (w *world) requireOneEffect(id string, attempt int) {
	w.t.Helper()
	require.Equal(w.t, 1, w.db.Int(w.t, "select count(*) from %s.effects where message_id = $1", id), "effects of %s", id)
	require.Equal(w.t, attempt, w.db.Int(w.t, "select attempt from %s.effects where message_id = $1", id), "attempt of %s", id)
	require.Zero(w.t, w.db.Int(w.t, "select count(*) from %s.failed_messages where message_id = $1", id), "%s is still set aside", id)
}

// told notes the calls of OnSetAside.
type told struct {
	mu    sync.Mutex
	calls []string
}

func newTold() *told { return &told{} }

func (l *told) note(_ context.Context, f consumer.Failure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, f.Message.ID+" "+string(f.Reason))
}

func (l *told) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.calls)
}
