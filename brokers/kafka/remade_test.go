package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ackafter/ackafter/brokers/kafka"
	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/internal/kafkatest"
)

// identities are ids by PositionID, with the topic's.
type identities struct {
	t    *testing.T
	seen map[string]string // the body by id
}

// take takes the next messages, acknowledges them, and returns the id of their
// topic, which must be one. Their own ids must be new.
func (i *identities) take(w *kafkatest.Worker, bodies ...string) (topicID string) {
	i.t.Helper()
	for n, body := range bodies {
		d := w.Next()
		if string(d.Body) != body {
			i.t.Fatalf("got %q at %s, want %q", d.Body, d.Position, body)
		}
		id, err := consumer.PositionID(d.Message)
		if err != nil {
			i.t.Fatal(err)
		}
		r := d.Raw.(*kafka.Record)
		if want := fmt.Sprintf("%s~%s/%d@%d", r.Topic, r.TopicID, r.Partition, r.Offset); id != want || r.TopicID == "" {
			i.t.Errorf("the id is %q, want %q", id, want)
		}
		if other, seen := i.seen[id]; seen {
			i.t.Errorf("%q and %q have the id %s", other, body, id)
		}
		if n > 0 && r.TopicID != topicID {
			i.t.Errorf("%q is of the topic %s, and those before of %s", body, r.TopicID, topicID)
		}
		topicID, i.seen[id] = r.TopicID, body
		d.Ack()
	}
	return topicID
}

// numbered returns "old 0", "old 1" ...
func numbered(name string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%s %d", name, i)
	}
	return all
}

// The topic is deleted and made again while there is no member. Brokers forget
// what was committed for a topic when they delete it, but a coordinator that
// was away then, or a commit that came late, may have kept it. Then it looks as
// if it had been copied from another cluster, and somebody has to decide.
func TestMadeAgainWhileAway(t *testing.T) {
	t.Parallel()
	for name, kept := range map[string]bool{"offset gone": false, "offset kept": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic := kafkatest.New(t, kafkatest.Brokers(t), 1)
			ids := &identities{t, map[string]string{}}
			topic.Send(0, numbered("old", 3)...)
			w := kafkatest.Start(t, topic.Config())
			before := ids.take(w, numbered("old", 3)...)
			w.Stop()
			at, metadata := topic.CommittedAs(0)
			if at != 3 || !strings.Contains(metadata, before) {
				t.Fatalf("committed are %d and %q, want 3 and the id %s", at, metadata, before)
			}
			topic.Remake(1)
			topic.Send(0, numbered("new", 8)...)
			config := topic.Config()
			if kept {
				topic.CommitAs(0, at, metadata)
				err := kafkatest.Start(t, config).Failed()
				if !errors.Is(err, kafka.ErrOffsetOutOfRange) {
					t.Errorf("Run: %v", err)
				}
				wantText(t, err, "has committed the offset 3", before, "copied from another cluster", "--to-current", "Config.OutOfRange")
				if now, as := topic.CommittedAs(0); now != at || as != metadata {
					t.Errorf("committed are %d and %q afterwards", now, as)
				}
				config.OutOfRange = kafka.OutOfRangeFirst
			}
			w = kafkatest.Start(t, config)
			if after := ids.take(w, numbered("new", 8)...); after == before {
				t.Errorf("both topics have the id %s", after)
			}
			kafkatest.Eventually(t, "all is committed", func() bool { return topic.Committed(0) == 8 })
			w.Stop()
			topic.Send(0, "more")
			ids.take(kafkatest.Start(t, topic.Config()), "more")
		})
	}
}

// The same while a member runs, which has nothing to do.
func TestMadeAgainWhileIdle(t *testing.T) {
	t.Parallel()
	topic := kafkatest.New(t, kafkatest.Brokers(t), 1)
	ids := &identities{t, map[string]string{}}
	topic.Send(0, numbered("old", 3)...)
	config := topic.Config()
	config.Start = kafka.StartLast // of the new topic nothing may be skipped
	topic.Commit(0, 0)
	w := kafkatest.Start(t, config)
	ids.take(w, numbered("old", 3)...)
	kafkatest.Eventually(t, "all is committed", func() bool { return topic.Committed(0) == 3 })
	for round := range 3 {
		bodies := numbered(fmt.Sprint("round ", round), 8)
		topic.Remake(1)
		topic.Send(0, bodies...)
		ids.take(w, bodies...)
		kafkatest.Eventually(t, "all is committed", func() bool { return topic.Committed(0) == 8 })
	}
	kafkatest.Eventually(t, "healthy", func() bool { return w.Source.Health() == nil })
}

// The same while a member holds messages of the old topic, which it settles
// after the new one was made. Each way to notice is tested alone.
func TestMadeAgainWhileHeld(t *testing.T) {
	t.Parallel()
	const never = 24 * time.Hour
	for name, adapt := range map[string]func(*kafka.Config){
		"fetch":  func(c *kafka.Config) { c.WatchInterval, c.CommitInterval = never, never },
		"watch":  func(c *kafka.Config) { c.BackoffMin, c.BackoffMax, c.CommitInterval = never, never, never },
		"commit": func(c *kafka.Config) { c.BackoffMin, c.BackoffMax, c.WatchInterval = never, never, never },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic := kafkatest.New(t, kafkatest.Brokers(t), 1)
			topic.Send(0, numbered("old", 3)...)
			config := topic.Config()
			adapt(&config)
			w := kafkatest.Start(t, config)
			held := w.Take(3)
			topic.Delete()
			kafkatest.Eventually(t, "the fetcher has noticed, and may wait now", func() bool { return w.Source.Health() != nil })
			kafkatest.Eventually(t, "it can be made again", func() bool { return topic.TryCreate(1) })
			topic.Send(0, numbered("new", 8)...)
			for _, d := range held {
				_ = d.Stream.Ack(context.Background(), d.Message) // it may have ended
			}
			select {
			case <-held[0].Ended:
			case <-time.After(kafkatest.Limit):
				t.Fatal("the stream does not end")
			}
			if at := topic.Committed(0); at > 0 {
				t.Errorf("committed is %d, and nothing of the new topic is settled", at)
			}
			w.Stop()
			if at := topic.Committed(0); at > 0 {
				t.Errorf("committed is %d after Stop, and nothing of the new topic is settled", at)
			}
			ids := &identities{t, map[string]string{}}
			ids.take(kafkatest.Start(t, topic.Config()), numbered("new", 8)...)
		})
	}
}

// What an operator or another client has committed has no id of a topic, and
// is believed.
func TestForeignOffset(t *testing.T) {
	t.Parallel()
	for _, metadata := range []string{"", "by somebody else"} {
		topic := kafkatest.New(t, kafkatest.Brokers(t), 1)
		topic.Send(0, "a", "b", "c")
		w := kafkatest.Start(t, topic.Config())
		w.Want("a", "b", "c")
		w.Stop()
		for _, at := range []int64{1, 2} {
			topic.CommitAs(0, at, metadata)
			w := kafkatest.Start(t, topic.Config())
			w.Want([]string{"a", "b", "c"}[at:]...)
			w.Stop()
		}
	}
}
