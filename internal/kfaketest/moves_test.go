package kfaketest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ackafter/ackafter/brokers/kafka"
	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/internal/kafkatest"
)

// The group moves to another coordinator. Commits follow it.
func TestCoordinatorMoves(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.NumBrokers(3))
	topic := kafkatest.New(t, c.ListenAddrs(), 1)
	source := newSource(t, topic.Config())
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- source.Run(ctx, func(ctx context.Context, s consumer.Stream) error {
			for {
				ms, err := s.Next(ctx, 10)
				if err != nil {
					return nil
				}
				_ = s.Ack(ctx, ms...) // else they come again
			}
		})
	}()
	for i := range 5 {
		topic.Send(0, fmt.Sprint(i))
		kafkatest.Eventually(t, "it is committed", func() bool { return topic.Committed(0) == int64(i+1) })
		before := c.CoordinatorFor(topic.Group)
		kafkatest.Eventually(t, "the coordinator is another broker", func() bool {
			c.RehashCoordinators()
			return c.CoordinatorFor(topic.Group) != before
		})
	}
	kafkatest.Eventually(t, "healthy", func() bool { return source.Health() == nil })
	stop()
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
}

// The leader sends the member to a replica in its rack. When that one is no
// replica any more, the member goes back to the leader.
func TestReadsFromReplica(t *testing.T) {
	t.Parallel()
	const leader, replica, rack = 0, 1, "here"
	c := newCluster(t, kfake.NumBrokers(2))
	topic := kafkatest.New(t, c.ListenAddrs(), 1)
	if err := c.MoveTopicPartition(topic.Name, 0, leader); err != nil {
		t.Fatal(err)
	}
	c.SetFollowers(topic.Name, 0, []int32{replica})
	var (
		sends atomic.Bool
		asked atomic.Int32 // how often the replica was asked
	)
	sends.Store(true)
	c.ControlKey(int16(kmsg.Fetch), func(request kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		fetch := request.(*kmsg.FetchRequest)
		if fetch.Rack != rack && sends.Load() || fetch.MaxWaitMillis != 300 || fetch.MinBytes != 1 {
			t.Errorf("the request has rack %q, wait %d ms, for %d bytes", fetch.Rack, fetch.MaxWaitMillis, fetch.MinBytes)
		}
		switch {
		case c.CurrentNode() == replica:
			asked.Add(1)
			return nil, nil, false
		case !sends.Load():
			return nil, nil, false
		}
		return sentTo(replica, fetch), nil, true
	})
	config := topic.Config()
	config.Rack, config.FetchWait = rack, 300*time.Millisecond
	w := kafkatest.Start(t, config)
	for i := range 3 {
		topic.Send(0, fmt.Sprint("replica ", i))
		w.Want(fmt.Sprint("replica ", i))
	}
	if asked.Load() == 0 {
		t.Error("the replica was not asked")
	}
	sends.Store(false)
	c.SetFollowers(topic.Name, 0, nil)
	topic.Send(0, "leader")
	w.Want("leader")
	if err := w.Source.Health(); err != nil {
		t.Errorf("Health: %v", err)
	}
}

// A replica fails each time. The leader, which would send the member there again
// and again, is asked without the rack, and the replica is left alone.
func TestReplicaFails(t *testing.T) {
	t.Parallel()
	const leader, replica, rack = 0, 1, "here"
	for name, fail := range map[string]func(*kmsg.FetchRequest) (kmsg.Response, error){
		"connection": func(*kmsg.FetchRequest) (kmsg.Response, error) { return nil, errors.New("closes it") },
		"error": func(r *kmsg.FetchRequest) (kmsg.Response, error) {
			res := sentTo(-1, r).(*kmsg.FetchResponse)
			res.Topics[0].Partitions[0].ErrorCode = kerr.KafkaStorageError.Code
			return res, nil
		},
		"damage": func(r *kmsg.FetchRequest) (kmsg.Response, error) {
			res := sentTo(-1, r).(*kmsg.FetchResponse)
			res.Topics[0].Partitions[0].RecordBatches = make([]byte, 100)
			return res, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, kfake.NumBrokers(2))
			topic := kafkatest.New(t, c.ListenAddrs(), 1)
			if err := c.MoveTopicPartition(topic.Name, 0, leader); err != nil {
				t.Fatal(err)
			}
			c.SetFollowers(topic.Name, 0, []int32{replica})
			var asked atomic.Int32
			c.ControlKey(int16(kmsg.Fetch), func(request kmsg.Request) (kmsg.Response, error, bool) {
				c.KeepControl()
				fetch := request.(*kmsg.FetchRequest)
				switch {
				case c.CurrentNode() == replica:
					asked.Add(1)
					res, err := fail(fetch)
					return res, err, true
				case fetch.Rack == rack:
					return sentTo(replica, fetch), nil, true
				}
				return nil, nil, false
			})
			config := topic.Config()
			config.Rack = rack
			w := kafkatest.Start(t, config)
			for i := range 5 {
				topic.Send(0, fmt.Sprint(i))
				w.Want(fmt.Sprint(i))
			}
			if n := asked.Load(); n != 1 {
				t.Errorf("the replica was asked %d times", n)
			}
		})
	}
}

// sentTo is the answer of a leader that has the client ask a replica.
func sentTo(replica int32, request *kmsg.FetchRequest) kmsg.Response {
	res := request.ResponseKind().(*kmsg.FetchResponse)
	for _, rt := range request.Topics {
		t := kmsg.NewFetchResponseTopic()
		t.Topic, t.TopicID = rt.Topic, rt.TopicID
		for _, rp := range rt.Partitions {
			p := kmsg.NewFetchResponseTopicPartition()
			p.Partition, p.PreferredReadReplica = rp.Partition, replica
			t.Partitions = append(t.Partitions, p)
		}
		res.Topics = append(res.Topics, t)
	}
	return res
}

// The retention deletes messages before a member that is at work has fetched
// them. What it holds counts, and what to do about the rest is what OutOfRange
// says.
func TestOvertakenByRetention(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, brokers []string) {
		for _, policy := range []kafka.OutOfRange{kafka.OutOfRangeFail, kafka.OutOfRangeFirst} {
			topic := kafkatest.New(t, brokers, 1)
			for i := range 20 {
				topic.Send(0, fmt.Sprint(i)) // a batch each
			}
			config := topic.Config()
			config.OutOfRange = policy
			config.Window, config.FetchBytes = 2, 1 // nearly nothing is fetched ahead
			w := kafkatest.Start(t, config)
			held := w.Take(2)
			deleteUpTo(t, topic, 18)
			for _, d := range held {
				d.Ack()
			}
			if policy == kafka.OutOfRangeFail {
				err := w.Failed()
				want := fmt.Sprintf("has committed the offset %d, but the log holds 18 to 20: its retention", topic.Committed(0))
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error = %v\nwant %q in it", err, want)
				}
				continue
			}
			for next := int64(2); next < 20; {
				d := w.Next()
				if o := offsetOf(d); o != next && o != 18 {
					t.Fatalf("%s comes, want the offset %d or 18", d.Position, next)
				}
				next = offsetOf(d) + 1
				d.Ack()
			}
			kafkatest.Eventually(t, "all is committed", func() bool { return topic.Committed(0) == 20 })
			w.Stop()
		}
	})
}
