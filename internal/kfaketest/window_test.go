package kfaketest

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ackafter/ackafter/internal/kafkatest"
)

// Window counts messages, and the log has gaps: what may be delivered again is
// marked all the same, and what may not is not.
func TestRedeliveredWithGaps(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, brokers []string) {
		topic := kafkatest.New(t, brokers, 1)
		p := newProducer(t, topic, "")
		for i := range 8 {
			p.begin()
			p.write(fmt.Sprint(i)) // at 2*i, and the end of the transaction behind it
			p.finish(kgo.TryCommit)
		}
		config := topic.Config()
		config.Window = 5
		w := kafkatest.Start(t, config)
		w.Take(5) // and no more: the window is full
		w.Stop()
		w = kafkatest.Start(t, config)
		for i := range 8 {
			d := w.Next()
			if d.Redelivered != (i < 5) {
				t.Errorf("Redelivered of %s is %v", d.Position, d.Redelivered)
			}
			d.Ack()
		}
	})
}

// What is settled and not committed comes again after a crash as well. So it
// counts in the window, and is committed before the interval has passed.
func TestWindowCountsFromTheCommit(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	topic := kafkatest.New(t, c.ListenAddrs(), 1)
	bodies := make([]string, 20)
	for i := range bodies {
		bodies[i] = fmt.Sprint(i)
	}
	topic.Send(0, bodies...)
	topic.Commit(0, 0)
	fence := newFence(c)
	fence.up.Store(true)
	config := topic.Config()
	config.Window, config.CommitInterval = 4, time.Hour
	w := kafkatest.Start(t, config)
	w.Want(bodies[:4]...)
	kafkatest.Eventually(t, "commits are refused", func() bool { return fence.refused.Load() > 0 })
	if p := w.Source.Partitions(); len(p) != 1 || p[0].Position != 4 || p[0].Settled != 4 || p[0].Committed != 0 {
		t.Errorf("the partition is %+v, want it to wait at 4", p)
	}
	w.Stop()
	fence.up.Store(false)
	w = kafkatest.Start(t, config)
	w.Want(bodies...)
	kafkatest.Eventually(t, "nearly all is committed without the interval", func() bool { return topic.Committed(0) >= 16 })
}

// A commit that the window waits for fails, and is tried again before the
// interval has passed.
func TestWindowWaitsForACommitThatFails(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	topic := kafkatest.New(t, c.ListenAddrs(), 1)
	topic.Send(0, "a", "b", "c")
	topic.Commit(0, 0)
	var sent atomic.Int32
	c.ControlKey(int16(kmsg.OffsetCommit), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if sent.Add(1) <= 3 {
			return nil, errors.New("away"), true
		}
		return nil, nil, false
	})
	config := topic.Config()
	config.Window, config.CommitInterval = 2, time.Hour
	kafkatest.Start(t, config).Want("a", "b", "c")
}
