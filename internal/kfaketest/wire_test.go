package kfaketest

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ackafter/ackafter/brokers/kafka"
	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/internal/kafkatest"
)

func offsetOf(d kafkatest.Delivery) int64 { return d.Raw.(*kafka.Record).Offset }

func newSource(t *testing.T, c kafka.Config) *kafka.Source {
	t.Helper()
	s, err := kafka.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// deleteUpTo deletes the messages below an offset, as retention does.
func deleteUpTo(t *testing.T, topic *kafkatest.Topic, offset int64) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(topic.Brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	request := kmsg.NewPtrDeleteRecordsRequest()
	one := kmsg.NewDeleteRecordsRequestTopic()
	one.Topic = topic.Name
	p := kmsg.NewDeleteRecordsRequestTopicPartition()
	p.Offset = offset
	one.Partitions = append(one.Partitions, p)
	request.Topics = append(request.Topics, one)
	request.TimeoutMillis = 10_000
	res, err := request.RequestWith(t.Context(), client)
	if err == nil {
		err = kerr.ErrorForCode(res.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// The retention has deleted what was not read.
func TestLogStartBeyondCommit(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, brokers []string) {
		for policy, want := range map[kafka.OutOfRange]string{kafka.OutOfRangeFail: "", kafka.OutOfRangeFirst: "3", kafka.OutOfRangeLast: "5"} {
			topic := kafkatest.New(t, brokers, 1)
			topic.Send(0, "0", "1", "2", "3", "4")
			topic.Commit(0, 1)
			deleteUpTo(t, topic, 3)
			config := topic.Config()
			config.OutOfRange = policy
			w := kafkatest.Start(t, config)
			if policy == kafka.OutOfRangeFail {
				err := w.Failed()
				if text := err.Error(); !strings.Contains(text, "has committed the offset 1, but the log holds 3 to 5: its retention") {
					t.Error(err)
				}
				continue
			}
			if policy == kafka.OutOfRangeLast {
				kafkatest.Eventually(t, "the end is committed", func() bool { return topic.Committed(0) == 5 })
				topic.Send(0, "5")
			}
			w.Want(want)
			w.Stop()
		}
	})
}

// A reply to a commit is lost: it is sent again, and nothing falls.
func TestLostCommitReply(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	topic := kafkatest.New(t, c.ListenAddrs(), 1)
	topic.Send(0, "a", "b")
	var last atomic.Int32 // how often the last offset was sent
	c.ControlKey(int16(kmsg.OffsetCommit), func(request kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if request.(*kmsg.OffsetCommitRequest).Topics[0].Partitions[0].Offset == 2 && last.Add(1) == 1 {
			return nil, errors.New("lost"), true // closes the connection
		}
		return nil, nil, false
	})
	w := kafkatest.Start(t, topic.Config())
	w.Want("a", "b")
	kafkatest.Eventually(t, "it is committed all the same", func() bool { return topic.Committed(0) == 2 })
	if n := last.Load(); n < 2 {
		t.Errorf("the commit that was lost was sent %d times", n)
	}
}

// A commit is refused because its generation has ended. That ends nothing, is
// no failure, and is not taken for a commit.
func TestFencedCommit(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	topic := kafkatest.New(t, c.ListenAddrs(), 1)
	topic.Send(0, "a", "b")
	fence := newFence(c)
	refusedAgain := func() {
		t.Helper()
		before := fence.refused.Load()
		kafkatest.Eventually(t, "a commit is refused again and again", func() bool { return fence.refused.Load() >= before+3 })
	}
	fence.up.Store(true)
	w := kafkatest.Start(t, topic.Config())
	refusedAgain()
	fence.up.Store(false)
	kafkatest.Eventually(t, "the beginning is committed", func() bool { return topic.Committed(0) == 0 })
	kafkatest.Eventually(t, "healthy", func() bool { return w.Source.Health() == nil })
	fence.up.Store(true)
	w.Want("a", "b")
	refusedAgain()
	if err := w.Source.Health(); err != nil {
		t.Errorf("Health: %v", err)
	}
	if p := w.Source.Partitions(); len(p) != 1 || p[0].Settled != 2 || p[0].Committed != 0 {
		t.Errorf("the partition is %+v, want 2 settled and 0 committed", p)
	}
	fence.up.Store(false)
	kafkatest.Eventually(t, "it is committed later", func() bool { return topic.Committed(0) == 2 })
}

// fence refuses commits while it is up.
type fence struct {
	up      atomic.Bool
	refused atomic.Int32
}

func newFence(c *kfake.Cluster) *fence {
	f := &fence{}
	c.ControlKey(int16(kmsg.OffsetCommit), func(request kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if !f.up.Load() {
			return nil, nil, false
		}
		f.refused.Add(1)
		res := request.ResponseKind().(*kmsg.OffsetCommitResponse)
		for _, rt := range request.(*kmsg.OffsetCommitRequest).Topics {
			t := kmsg.NewOffsetCommitResponseTopic()
			t.Topic = rt.Topic
			for _, rp := range rt.Partitions {
				p := kmsg.NewOffsetCommitResponseTopicPartition()
				p.Partition, p.ErrorCode = rp.Partition, kerr.IllegalGeneration.Code
				t.Partitions = append(t.Partitions, p)
			}
			res.Topics = append(res.Topics, t)
		}
		return res, nil, true
	})
	return f
}

// The coordinator is away for a while: nothing ends, and Health says so.
func TestCoordinatorGone(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	topic := kafkatest.New(t, c.ListenAddrs(), 1)
	topic.Send(0, "a")
	w := kafkatest.Start(t, topic.Config())
	w.Want("a")
	kafkatest.Eventually(t, "it is committed", func() bool { return topic.Committed(0) == 1 })
	var away atomic.Bool
	away.Store(true)
	for _, key := range []kmsg.Key{kmsg.Heartbeat, kmsg.FindCoordinator} {
		c.ControlKey(int16(key), func(request kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			if !away.Load() {
				return nil, nil, false
			}
			return nil, errors.New("away"), true
		})
	}
	kafkatest.Eventually(t, "unhealthy", func() bool { return w.Source.Health() != nil })
	kafkatest.Eventually(t, "an outage", func() bool { return errors.Is(w.Source.Health(), consumer.ErrOutage) })
	topic.Send(0, "b")
	pause(t.Context(), lasting(t, "ACKAFTER_AWAY", time.Second))
	away.Store(false)
	w.Want("b")
	kafkatest.Eventually(t, "healthy again", func() bool { return w.Source.Health() == nil })
}

// The leader of a partition moves to another broker.
func TestLeaderMoves(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.NumBrokers(3))
	topic := kafkatest.New(t, c.ListenAddrs(), 1)
	w := kafkatest.Start(t, topic.Config())
	for node := range int32(3) {
		if err := c.MoveTopicPartition(topic.Name, 0, node); err != nil {
			t.Fatal(err)
		}
		topic.Send(0, fmt.Sprint(node))
		w.Want(fmt.Sprint(node))
	}
}

func TestSASL(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "p", "secret"), kfake.Superuser("SCRAM-SHA-256", "s", "secret"),
		kfake.SeedTopics(1, "t"))
	good, err := scram.Mechanism(scram.SHA256, "s", "secret")
	if err != nil {
		t.Fatal(err)
	}
	wrong, err := scram.Mechanism(scram.SHA256, "s", "wrong")
	if err != nil {
		t.Fatal(err)
	}
	config := kafka.Config{Brokers: c.ListenAddrs(), Group: "g", Topics: []string{"t"}}
	for name, check := range map[string]struct {
		set  func(*kafka.Config)
		want string
	}{
		"PLAIN":              {func(c *kafka.Config) { c.SASL = plain.Mechanism{Username: "p", Password: "secret"} }, ""},
		"SCRAM":              {func(c *kafka.Config) { c.SASL = good }, ""},
		"wrong password":     {func(c *kafka.Config) { c.SASL = plain.Mechanism{Username: "p", Password: "hush"} }, "the user and the password of Config.SASL wrong"},
		"wrong SCRAM secret": {func(c *kafka.Config) { c.SASL = wrong }, "the user and the password of Config.SASL wrong"},
		"none":               {func(*kafka.Config) {}, "or SASL (Config.SASL)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := config
			check.set(&config)
			err := newSource(t, config).Check(t.Context(), consumer.Plan{Workers: 1, Warn: func(string) {}})
			if check.want == "" && err != nil || check.want != "" && (err == nil || !strings.Contains(err.Error(), check.want)) {
				t.Errorf("Check: %v, want %q", err, check.want)
			}
			if err != nil && strings.Contains(err.Error(), "hush") {
				t.Errorf("the password is in the error: %v", err)
			}
		})
	}
}

func TestACL(t *testing.T) {
	t.Parallel()
	user := func(acls ...kfake.ACL) kfake.Opt { return kfake.User("PLAIN", "u", "u", acls...) }
	allow := func(resource kmsg.ACLResourceType, name string, op kmsg.ACLOperation) kfake.ACL {
		return kfake.ACL{Resource: resource, Name: name, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: op, Allow: true}
	}
	describe := allow(kmsg.ACLResourceTypeTopic, "t", kmsg.ACLOperationDescribe)
	read := allow(kmsg.ACLResourceTypeTopic, "t", kmsg.ACLOperationRead)
	group := allow(kmsg.ACLResourceTypeGroup, "g", kmsg.ACLOperationRead)
	for name, check := range map[string]struct {
		acls []kfake.ACL
		want string
	}{
		"all":              {[]kfake.ACL{read, group}, ""},
		"no read of topic": {[]kfake.ACL{describe, group}, "grant Read and Describe on the topic"},
		"no topic":         {[]kfake.ACL{group}, `topic "t"`},
		"no group":         {[]kfake.ACL{read}, "grant Read on the group"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.SeedTopics(1, "t"), user(check.acls...))
			config := kafka.Config{Brokers: c.ListenAddrs(), Group: "g", Topics: []string{"t"}, SASL: plain.Mechanism{Username: "u", Password: "u"}}
			err := newSource(t, config).Check(t.Context(), consumer.Plan{Workers: 1, Warn: func(string) {}})
			if check.want == "" && err != nil || check.want != "" && (err == nil || !strings.Contains(err.Error(), check.want)) {
				t.Errorf("Check: %v, want %q", err, check.want)
			}
			if errors.Is(err, consumer.ErrOutage) {
				t.Errorf("an outage: %v", err)
			}
		})
	}
}

// A log that compaction has emptied in places: what is left arrives, and
// nothing is read for ever.
func TestCompacted(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	topic := kafkatest.New(t, c.ListenAddrs(), 1)
	topic.Configure("cleanup.policy", "compact")
	topic.Configure("segment.ms", "1")
	for i := 0; i < 20; i += 5 { // of each batch some are left, or none
		batch := make([]kafkago.Message, 5)
		for j := range batch {
			key := fmt.Append(nil, i+j)
			if i == 5 || j%2 == 1 {
				key = []byte("only the last is left")
			}
			batch[j] = kafkago.Message{Key: key, Value: fmt.Append(nil, i+j)}
		}
		topic.Write(0, 0, batch...)
	}
	c.Compact()
	config := topic.Config()
	config.FetchBytes = 1 // a batch for each answer
	w := kafkatest.Start(t, config)
	last, n := int64(-1), 0
	for ; last < 19; n++ {
		d := w.Next()
		if offsetOf(d) <= last {
			t.Fatalf("%s comes after %d", d.Position, last)
		}
		last = offsetOf(d)
		d.Ack()
	}
	if n > 15 {
		t.Errorf("%d of 20 messages are left: that is no test of compaction", n)
	}
	kafkatest.Eventually(t, "all is committed", func() bool { return topic.Committed(0) == 20 })
}
