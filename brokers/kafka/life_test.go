package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/ackafter/ackafter/brokers/kafka"
	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/internal/kafkatest"
)

// Offset 5 is settled before 3, and the process dies: 3 comes again.
func TestKilledWithAGap(t *testing.T) {
	t.Parallel()
	topic := kafkatest.New(t, kafkatest.Brokers(t), 1)
	topic.Send(0, "0", "1", "2", "3", "4", "5", "6")
	wire := &kafkatest.Cutter{}
	config := topic.Config()
	config.Dial, config.CloseTimeout = wire.Dial, 50*time.Millisecond
	w := kafkatest.Start(t, config)
	for _, d := range w.Take(7) {
		if d.Raw.(*kafka.Record).Offset != 3 {
			d.Ack()
		}
	}
	kafkatest.Eventually(t, "what is below the gap is committed", func() bool { return topic.Committed(0) >= 3 })
	if at := topic.Committed(0); at != 3 {
		t.Fatalf("committed is %d, and 3 is not settled", at)
	}
	wire.Kill()
	w.Stop()
	kafkatest.Start(t, topic.Config()).Want("3", "4", "5", "6")
}

// What is settled is committed when the source stops, without waiting for the
// interval.
func TestStopCommits(t *testing.T) {
	t.Parallel()
	topic := kafkatest.New(t, kafkatest.Brokers(t), 1)
	topic.Send(0, "0", "1", "2")
	config := topic.Config()
	config.CommitInterval = time.Hour
	w := kafkatest.Start(t, config)
	w.Want("0", "1", "2")
	w.Stop()
	if at := topic.Committed(0); at != 3 {
		t.Errorf("committed is %d, want 3", at)
	}
}

// A partition moves while its messages are held. What is settled in time is
// committed, the rest goes to the new owner, and what is settled too late
// counts for nothing.
func TestPartitionMoves(t *testing.T) {
	t.Parallel()
	topic := kafkatest.New(t, kafkatest.Brokers(t), 2)
	for partition := range 2 {
		topic.Send(partition, "a", "b", "c")
	}
	sampler := newSampler(t, topic, 2)
	first := kafkatest.Start(t, topic.Config())
	held := first.Take(6)
	for _, d := range held {
		if string(d.Body) == "a" {
			d.Ack()
		}
	}
	second := kafkatest.Start(t, topic.Config())
	d := second.Next()
	if string(d.Body) != "b" {
		t.Errorf("the new owner begins with %q, want what was not settled", d.Body)
	}
	for _, old := range held { // the serve of kafkatest has returned
		if err := old.Stream.Ack(t.Context(), old.Message); err == nil {
			t.Errorf("%s was acknowledged after its stream had ended", old.Position)
		}
	}
	d.Ack()
	second.Want("c")
	first.Want("b", "c")
	for partition := range 2 {
		kafkatest.Eventually(t, "all is committed", func() bool { return topic.Committed(partition) == 3 })
	}
	sampler.stop()
}

// sampler sees to it that committed offsets never fall.
type sampler struct {
	t      *testing.T
	cancel context.CancelFunc
	done   chan struct{}
}

func newSampler(t *testing.T, topic *kafkatest.Topic, partitions int) *sampler {
	ctx, cancel := context.WithCancel(t.Context())
	s := &sampler{t: t, cancel: cancel, done: make(chan struct{})}
	last := slices.Repeat([]int64{-1}, partitions)
	go func() {
		defer close(s.done)
		for ctx.Err() == nil {
			for partition := range last {
				at := topic.Committed(partition)
				if at < last[partition] {
					t.Errorf("the committed offset of %d fell from %d to %d", partition, last[partition], at)
				}
				last[partition] = at
			}
		}
	}()
	t.Cleanup(s.stop)
	return s
}

func (s *sampler) stop() {
	s.cancel()
	<-s.done
}

// A handler takes longer than the group waits. The member is thrown out, its
// acknowledgement comes to nothing, and it joins again.
func TestSlowerThanTheRebalance(t *testing.T) {
	t.Parallel()
	topic := kafkatest.New(t, kafkatest.Brokers(t), 1)
	topic.Send(0, "a", "b")
	sampler := newSampler(t, topic, 1)
	config := topic.Config()
	config.RebalanceTimeout = time.Second
	config.SessionTimeout = 2 * kafkatest.Limit // not this throws it out
	slow, err := kafka.New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	begun, finish, again, done := make(chan struct{}), make(chan struct{}), make(chan struct{}, 1), make(chan error, 1)
	first := true
	go func() {
		done <- slow.Run(ctx, func(ctx context.Context, s consumer.Stream) error {
			if !first {
				again <- struct{}{}
				<-ctx.Done()
				return nil
			}
			first = false
			ms, err := s.Next(ctx, 1)
			if err != nil {
				return err
			}
			close(begun)
			<-finish // whatever ctx says
			_ = s.Ack(context.Background(), ms...)
			return nil
		})
	}()
	<-begun
	quick := kafkatest.Start(t, config)
	quick.Want("a", "b")
	kafkatest.Eventually(t, "all is committed", func() bool { return topic.Committed(0) == 2 })
	close(finish)
	quick.Stop()
	select {
	case <-again:
	case <-time.After(kafkatest.Limit):
		t.Error("it does not join again")
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
	sampler.stop()
	if at := topic.Committed(0); at != 2 {
		t.Errorf("committed is %d at the end, want 2", at)
	}
}

func TestNewPartitions(t *testing.T) {
	t.Parallel()
	topic := kafkatest.New(t, kafkatest.Brokers(t), 1)
	w := kafkatest.Start(t, topic.Config())
	topic.Send(0, "a")
	w.Want("a")
	topic.Grow(3)
	topic.Send(2, "b")
	w.Want("b")
}

// The committed offset is beyond the end of the log, as when the topic was
// deleted and created again, and the group's offsets were kept.
func TestOutOfRange(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policy kafka.OutOfRange
		want   string
	}{
		"fail": {kafka.OutOfRangeFail, ""}, "first": {kafka.OutOfRangeFirst, "new"}, "last": {kafka.OutOfRangeLast, "next"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic := kafkatest.New(t, kafkatest.Brokers(t), 1)
			topic.Send(0, "new")
			topic.Commit(0, 3)
			config := topic.Config()
			config.OutOfRange = c.policy
			w := kafkatest.Start(t, config)
			if c.policy == kafka.OutOfRangeFail {
				err := w.Failed()
				if !errors.Is(err, kafka.ErrOffsetOutOfRange) || errors.Is(err, consumer.ErrOutage) {
					t.Errorf("errors.Is does not tell: %v", err)
				}
				wantText(t, err, topic.Name+"/0", "has committed the offset 3", "holds 0 to 1", "deleted and created again", "Config.OutOfRange")
				return
			}
			if c.policy == kafka.OutOfRangeLast {
				kafkatest.Eventually(t, "the end is committed", func() bool { return topic.Committed(0) == 1 })
				topic.Send(0, "next")
			}
			w.Want(c.want)
		})
	}
}

func TestCloseWhileIdle(t *testing.T) {
	topic := kafkatest.New(t, kafkatest.Brokers(t), 3)
	config := topic.Config()
	config.FetchWait, config.HeartbeatInterval = 5*time.Second, 3*time.Second
	w := kafkatest.Start(t, config)
	for partition := range 3 {
		topic.Send(partition, fmt.Sprint(partition))
	}
	for range 3 {
		w.Next().Ack()
	}
	kafkatest.Eventually(t, "all is committed", func() bool { return topic.Committed(0) == 1 })
	began := time.Now()
	w.Stop()
	if took := time.Since(began); took > 200*time.Millisecond {
		t.Errorf("it took %v to stop", took)
	}
	members, err := topic.API.DescribeGroups(t.Context(), &kafkago.DescribeGroupsRequest{GroupIDs: []string{topic.Group}})
	if err != nil || len(members.Groups[0].Members) != 0 {
		t.Errorf("the group still has members: %+v, %v", members, err)
	}
}

// Kafka does not count deliveries. What an owner before may have been given is
// marked; what nobody can have been given is not. A group without commits may
// have lost them.
func TestRedelivered(t *testing.T) {
	t.Parallel()
	topic := kafkatest.New(t, kafkatest.Brokers(t), 1)
	topic.Send(0, "a", "b", "c", "d", "e", "f", "g", "h")
	config := topic.Config()
	config.Window = 3
	w := kafkatest.Start(t, config)
	for _, want := range []bool{true, true, true, false} {
		d := w.Next()
		if d.Redelivered != want {
			t.Errorf("Redelivered of %s is %v, and the group has no commits", d.Position, d.Redelivered)
		}
		d.Ack()
	}
	w.Stop()
	w = kafkatest.Start(t, config)
	for _, want := range []bool{true, true, true, false} {
		d := w.Next()
		if d.Redelivered != want {
			t.Errorf("Redelivered of %s is %v", d.Position, d.Redelivered)
		}
		d.Ack()
	}
}
