package kfaketest

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ackafter/ackafter/brokers/kafka"
	"github.com/ackafter/ackafter/internal/kafkatest"
)

// truncate makes the brokers answer as if the log were another one from an offset
// on, to those who say in which epoch they read what is before. TestPrivateBroker
// shows that Kafka does so.
func truncate(c *kfake.Cluster) (from *atomic.Int64) {
	from = &atomic.Int64{}
	from.Store(1 << 40)
	c.ControlKey(int16(kmsg.Fetch), func(request kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		fetch := request.(*kmsg.FetchRequest)
		p := fetch.Topics[0].Partitions[0]
		if p.LastFetchedEpoch < 0 || p.FetchOffset <= from.Load() {
			return nil, nil, false
		}
		res := sentTo(-1, fetch).(*kmsg.FetchResponse)
		res.Topics[0].Partitions[0].DivergingEpoch.EndOffset = from.Load()
		return res, nil, true
	})
	return from
}

// The log is cut off while a member is at work. What it has committed is below
// that, so it begins there anew.
func TestTruncatedBeyondTheCommit(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	topic := kafkatest.New(t, c.ListenAddrs(), 1)
	from := truncate(c)
	topic.Send(0, "a", "b", "c")
	w := kafkatest.Start(t, topic.Config())
	w.Want("a")
	held := w.Take(2)
	kafkatest.Eventually(t, "it is committed", func() bool { return topic.Committed(0) == 1 })
	from.Store(2)
	<-held[0].Ended
	if again := w.Next(); string(again.Body) != "b" || !again.Redelivered {
		t.Errorf("%q comes again (%v), want b", again.Body, again.Redelivered)
	}
}

// The log is cut off below what was committed. Nothing is skipped in silence.
func TestTruncatedBelowTheCommit(t *testing.T) {
	t.Parallel()
	for policy, want := range map[kafka.OutOfRange]string{kafka.OutOfRangeFail: "", kafka.OutOfRangeFirst: "b", kafka.OutOfRangeLast: "d"} {
		c := newCluster(t)
		topic := kafkatest.New(t, c.ListenAddrs(), 1)
		topic.Send(0, "a", "b", "c")
		config := topic.Config()
		config.OutOfRange = policy
		w := kafkatest.Start(t, config)
		w.Want("a", "b", "c")
		kafkatest.Eventually(t, "it is committed", func() bool { return topic.Committed(0) == 3 })
		truncate(c).Store(1)
		if policy == kafka.OutOfRangeFail {
			err := w.Failed()
			if !errors.Is(err, kafka.ErrOffsetOutOfRange) || !strings.Contains(err.Error(), "has committed the offset 3, but the log is another one from 1 on") {
				t.Errorf("Run: %v", err)
			}
			continue
		}
		if policy == kafka.OutOfRangeLast {
			kafkatest.Eventually(t, "the end is committed anew", func() bool {
				_, epoch, _ := topic.CommittedIn(0)
				return epoch < 0
			})
			topic.Send(0, "d")
		}
		if d := w.Next(); string(d.Body) != want { // its stream may have ended already
			t.Errorf("%v: %q comes, want %q", policy, d.Body, want)
		}
		w.Stop()
	}
}
