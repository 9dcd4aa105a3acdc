package kfaketest

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ackafter/ackafter/brokers/kafka"
	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/internal/kafkatest"
)

// lasting returns how long a disturbance goes on: as the environment says, as in
// ACKAFTER_CHURN=1m, or a short time.
func lasting(t *testing.T, variable string, short time.Duration) time.Duration {
	text := os.Getenv(variable)
	if text == "" {
		return short
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Members join, leave and are killed while leaders move, and messages keep
// coming. Every message is handled, and no committed offset ever falls.
func TestChurn(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.NumBrokers(3), kfake.GroupMinSessionTimeout(100*time.Millisecond))
	topic := kafkatest.New(t, c.ListenAddrs(), partitions)
	churn := &churn{t: t, topic: topic, handled: map[string]int{}, committed: map[[2]any]int64{}}
	c.ControlKey(int16(kmsg.OffsetCommit), func(request kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		churn.sent(request.(*kmsg.OffsetCommitRequest))
		return nil, nil, false
	})
	duration := lasting(t, "ACKAFTER_CHURN", 5*time.Second)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	for i := range 3 {
		all.Go(func() { churn.members(ctx, time.Second<<i) })
	}
	all.Go(func() {
		defer cancel()
		pause(ctx, duration)
		churn.untilWorked(ctx)
	})
	all.Go(func() {
		for ctx.Err() == nil {
			if err := c.MoveTopicPartition(topic.Name, rand.Int32N(partitions), rand.Int32N(3)); err != nil {
				t.Error(err)
			}
			pause(ctx, 100*time.Millisecond)
		}
	})
	all.Go(func() { churn.sample(ctx) })
	published := churn.publish(ctx)
	all.Wait()
	if !churn.worked() {
		t.Error("the members have handled too little: this tests nothing")
	}
	handled := churn.handledOnce()

	// The last member gets what is left.
	churn.finish(published)
	churn.mu.Lock()
	defer churn.mu.Unlock()
	t.Logf("%d messages, %d of them handled during the churn, %d more than once, %d members, %d commits",
		published, handled, churn.repeated(published), churn.count, churn.commits)
}

const partitions = 6

type churn struct {
	t     *testing.T
	topic *kafkatest.Topic

	mu        sync.Mutex
	handled   map[string]int
	repeats   int
	count     int // members
	commits   int
	committed map[[2]any]int64 // by generation and partition
}

// untilWorked waits until the members have worked, or for too long.
func (c *churn) untilWorked(ctx context.Context) {
	for end := time.Now().Add(kafkatest.Limit); !c.worked() && time.Now().Before(end) && ctx.Err() == nil; {
		pause(ctx, 10*time.Millisecond)
	}
}

// worked tells whether the members have handled much, of which something came
// again.
func (c *churn) worked() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.handled) >= 2000 && c.repeats > 0
}

func (c *churn) handledOnce() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.handled)
}

// handle is the commit in the database.
func (c *churn) handle(m *consumer.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	body := string(m.Body)
	if c.handled[body]++; c.handled[body] > 1 {
		c.repeats++
	}
}

// sent sees every commit on its way: within one generation they only rise.
func (c *churn) sent(request *kmsg.OffsetCommitRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.commits++
	for _, topic := range request.Topics {
		for _, p := range topic.Partitions {
			key := [2]any{request.Generation, p.Partition}
			if last, sent := c.committed[key]; sent && p.Offset < last {
				c.t.Errorf("generation %d commits %d for partition %d after %d", request.Generation, p.Offset, p.Partition, last)
			}
			c.committed[key] = p.Offset
		}
	}
}

func (c *churn) config(wire *kafkatest.Cutter) kafka.Config {
	config := c.topic.Config()
	config.Dial = wire.Dial
	// Quick, else there would be nothing but rebalances. And a member that waits
	// for others to join must not reach its session timeout: kfake, unlike Kafka,
	// forgets it then, and never answers.
	config.SessionTimeout, config.RebalanceTimeout = 600*time.Millisecond, 200*time.Millisecond
	config.HeartbeatInterval = 20 * time.Millisecond
	config.RequestTimeout, config.CloseTimeout = 2*time.Second, 100*time.Millisecond
	config.Window = 50
	return config
}

// members is one member after the other, each of which leaves or is killed
// before limit.
func (c *churn) members(ctx context.Context, limit time.Duration) {
	for ctx.Err() == nil {
		c.mu.Lock()
		c.count++
		c.mu.Unlock()
		wire := &kafkatest.Cutter{}
		source, err := kafka.New(c.config(wire))
		if err != nil {
			c.t.Error(err)
			return
		}
		life, end := context.WithTimeout(ctx, rand.N(limit))
		if rand.IntN(2) == 0 {
			context.AfterFunc(life, wire.Kill)
		}
		if err := source.Run(life, c.serve); err != nil {
			c.t.Errorf("Run: %v", err)
		}
		end()
	}
}

// serve handles messages in batches, and settles them in any order.
func (c *churn) serve(ctx context.Context, s consumer.Stream) error {
	for {
		ms, err := s.Next(ctx, 20)
		if err != nil {
			return nil
		}
		rand.Shuffle(len(ms), func(i, j int) { ms[i], ms[j] = ms[j], ms[i] })
		for _, m := range ms {
			if rand.IntN(20) == 0 {
				pause(ctx, 20*time.Millisecond)
			}
			c.handle(m)
			if err := s.Ack(ctx, m); err != nil {
				return nil
			}
		}
	}
}

func (c *churn) publish(ctx context.Context) (published int) {
	for ctx.Err() == nil {
		if err := c.topic.Publish(context.WithoutCancel(ctx), messages(published, 30)...); err != nil {
			c.t.Error(err)
		}
		published += 30
		pause(ctx, 5*time.Millisecond)
	}
	return published
}

func messages(from, n int) []*consumer.Message {
	ms := make([]*consumer.Message, n)
	for i := range ms {
		ms[i] = &consumer.Message{Key: []byte{byte(i)}, Body: fmt.Append(nil, from+i)}
	}
	return ms
}

// sample sees to it that what is committed never falls.
func (c *churn) sample(ctx context.Context) {
	last := [partitions]int64{}
	for ctx.Err() == nil {
		for p := range last {
			at := max(0, c.topic.Committed(p))
			if at < last[p] {
				c.t.Errorf("partition %d fell from %d to %d", p, last[p], at)
			}
			last[p] = at
		}
		pause(ctx, 5*time.Millisecond)
	}
}

// finish lets a last member handle what is left.
func (c *churn) finish(published int) {
	source, err := kafka.New(c.config(&kafkatest.Cutter{}))
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(c.t.Context())
	done := make(chan error, 1)
	go func() { done <- source.Run(ctx, c.serveQuickly) }()
	for ; c.left(source) > 0; pause(ctx, 10*time.Millisecond) {
		before := c.left(source)
		kafkatest.Eventually(c.t, "the last member gets on", func() bool { return c.left(source) < before })
	}
	stop()
	if err := <-done; err != nil {
		c.t.Errorf("Run: %v", err)
	}
	for i := range published {
		if c.handled[fmt.Sprint(i)] == 0 {
			c.t.Errorf("message %d is lost, of %d; %d were handled", i, published, len(c.handled))
			return
		}
	}
}

// left returns how many messages are not settled: very many while a partition
// is not assigned, or its end is not known.
func (c *churn) left(source *kafka.Source) (n int64) {
	all := source.Partitions()
	for _, p := range all {
		if n += p.HighWatermark - p.Settled; p.HighWatermark < 0 {
			return math.MaxInt64
		}
	}
	if len(all) != partitions {
		return math.MaxInt64
	}
	return n
}

func (c *churn) serveQuickly(ctx context.Context, s consumer.Stream) error {
	for {
		ms, err := s.Next(ctx, 100)
		if err != nil {
			return nil
		}
		for _, m := range ms {
			c.handle(m)
		}
		if err := s.Ack(ctx, ms...); err != nil {
			return nil
		}
	}
}

func (c *churn) repeated(published int) (n int) {
	for i := range published {
		if c.handled[fmt.Sprint(i)] > 1 {
			n++
		}
	}
	return n
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
