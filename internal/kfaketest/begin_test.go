package kfaketest

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ackafter/ackafter/brokers/kafka"
	"github.com/ackafter/ackafter/internal/kafkatest"
)

// The first commit fails, so the beginning is not known to the group. What is
// written meanwhile is not skipped.
func TestStartLastUncommitted(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	topic := kafkatest.New(t, c.ListenAddrs(), 1)
	topic.Send(0, "before")
	fence := newFence(c)
	fence.up.Store(true)
	config := topic.Config()
	config.Start = kafka.StartLast
	w := kafkatest.Start(t, config)
	kafkatest.Eventually(t, "the beginning cannot be committed", func() bool { return fence.refused.Load() > 0 })
	topic.Send(0, "meanwhile")
	before := fence.refused.Load()
	kafkatest.Eventually(t, "nor later", func() bool { return fence.refused.Load() > before+2 })
	fence.up.Store(false)
	w.Want("meanwhile")
}

// A transaction is open at the end of the log. It is committed after the group
// has begun, so it is none of what was there before.
func TestStartLastInATransaction(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, brokers []string) {
		for uncommitted, want := range map[bool]string{false: "open", true: "after"} {
			topic := kafkatest.New(t, brokers, 1)
			topic.Send(0, "before")
			p := newProducer(t, topic, "")
			p.begin()
			p.write("open")
			config := topic.Config()
			config.Start, config.ReadUncommitted = kafka.StartLast, uncommitted
			w := kafkatest.Start(t, config)
			kafkatest.Eventually(t, "the beginning is committed", func() bool { return topic.Committed(0) > 0 })
			p.finish(kgo.TryCommit)
			topic.Send(0, "after")
			w.Want(want)
			w.Stop()
		}
	})
}
