package kfaketest

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/ackafter/ackafter/brokers/kafka"
	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/internal/kafkatest"
)

// Brokers before Kafka 2.8 have no topic ids. All works but PositionID, which
// says why.
func TestWithoutTopicIDs(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.MaxVersions(kversion.V2_7_0()))
	topic := kafkatest.New(t, c.ListenAddrs(), 1)
	topic.Send(0, "a", "b")
	w := kafkatest.Start(t, topic.Config())
	d := w.Next()
	if id := d.Raw.(*kafka.Record).TopicID; id != "" {
		t.Errorf("the topic's id is %q", id)
	}
	if id, err := consumer.PositionID(d.Message); !errors.Is(err, consumer.ErrNoID) || !strings.Contains(err.Error(), "no topic id") {
		t.Errorf("PositionID: %q, %v", id, err)
	}
	d.Ack()
	w.Want("b")
	kafkatest.Eventually(t, "all is committed", func() bool { return topic.Committed(0) == 2 })
	if _, metadata := topic.CommittedAs(0); strings.Contains(metadata, "topic-id") {
		t.Errorf("the metadata is %q", metadata)
	}
	w.Stop()
	topic.Grow(2)
	topic.Send(0, "c")
	topic.Send(1, "d")
	kafkatest.Start(t, topic.Config()).Take(2)
}

// The fetcher notices nothing until the new topic holds messages at the offset
// where it goes on. They must not be delivered as those of the old one. Between
// Kafka 2.8 and 3.1 topics have ids, but are fetched by their names.
func TestMadeAgainUnnoticed(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]kfake.Opt{
		"by name": {kfake.MaxVersions(kversion.V3_0_0())}, "by id": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, options...)
			var away atomic.Bool
			c.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
				c.KeepControl()
				return nil, errors.New("away"), away.Load()
			})
			topic := kafkatest.New(t, c.ListenAddrs(), 1)
			topic.Send(0, "old")
			config := topic.Config()
			config.WatchInterval, config.CommitInterval = time.Hour, time.Hour
			w := kafkatest.Start(t, config)
			d := w.Next()
			d.Ack()
			away.Store(true)
			kafkatest.Eventually(t, "it cannot fetch", func() bool { return w.Source.Health() != nil })
			topic.Remake(1)
			topic.Send(0, "a", "b", "c")
			away.Store(false)
			old := d.Raw.(*kafka.Record).TopicID
			for _, body := range []string{"a", "b", "c"} {
				d := w.Next()
				if id := d.Raw.(*kafka.Record).TopicID; string(d.Body) != body || id == "" || id == old {
					t.Fatalf("got %q at %s of the topic %q, want %q; the topic before was %q", d.Body, d.Position, id, body, old)
				}
				d.Ack()
			}
		})
	}
}
