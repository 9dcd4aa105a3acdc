package kfaketest

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ackafter/ackafter/internal/kafkatest"
)

// A commit gets no answer in time, and comes to the group after a later one. The
// later one is committed again.
func TestCommitOvertaken(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	topic := kafkatest.New(t, c.ListenAddrs(), 1)
	topic.Commit(0, 0)
	arrive := make(chan struct{})
	var held, again atomic.Int32
	var came atomic.Bool
	c.ControlKey(int16(kmsg.OffsetCommit), func(request kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		switch at := request.(*kmsg.OffsetCommitRequest).Topics[0].Partitions[0].Offset; {
		case at == 1 && held.Add(1) == 1:
			c.SleepControl(func() { <-arrive })
			came.Store(true)
		case at == 2 && came.Load():
			again.Add(1)
		}
		return nil, nil, false
	})
	config := topic.Config()
	config.RequestTimeout = time.Second
	w := kafkatest.Start(t, config)
	topic.Send(0, "a")
	w.Want("a")
	kafkatest.Eventually(t, "the commit is on its way", func() bool { return held.Load() > 0 })
	topic.Send(0, "b")
	w.Want("b")
	kafkatest.Eventually(t, "the later one is there", func() bool { return topic.Committed(0) == 2 })
	close(arrive)
	kafkatest.Eventually(t, "the later one comes again", func() bool { return came.Load() && again.Load() > 0 })
	kafkatest.Eventually(t, "and stays", func() bool { return topic.Committed(0) == 2 })
	w.Stop()
	if at := topic.Committed(0); at != 2 {
		t.Errorf("committed is %d at the end", at)
	}
}
