package kafka_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/ackafter/ackafter/brokers/kafka"
	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/internal/kafkatest"
)

// deadLetters returns dead letters that are closed at the end of the test.
func deadLetters(t *testing.T, c kafka.DeadLetterConfig) *kafka.DeadLetter {
	t.Helper()
	d, err := kafka.NewDeadLetter(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func publishDead(t *testing.T, d *kafka.DeadLetter, m *consumer.Message) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), kafkatest.Limit)
	defer cancel()
	return d.Publish(ctx, consumer.Failure{Message: m, Reason: consumer.ReasonPermanent, Error: "no such account", Attempts: 3, RetryIn: -1})
}

// publishSoon is publishDead for a topic that is new, and has no leader for a
// moment.
func publishSoon(t *testing.T, d *kafka.DeadLetter, m *consumer.Message) {
	t.Helper()
	kafkatest.Eventually(t, "the dead letter is written", func() bool { return publishDead(t, d, m) == nil })
}

// Null and empty stay apart, and nothing of the message is missing.
func TestDeadLetterKeepsTheRecord(t *testing.T) {
	t.Parallel()
	from, dead := kafkatest.New(t, kafkatest.Brokers(t), 1), kafkatest.New(t, kafkatest.Brokers(t), 3)
	old := time.Now().Add(-30 * 24 * time.Hour).Truncate(time.Millisecond)
	from.Write(0, 0,
		kafkago.Message{Key: []byte("k"), Value: nil, Time: old},
		kafkago.Message{Key: []byte{}, Value: []byte{}, Headers: []kafkago.Header{
			{Key: "h", Value: []byte("one")}, {Key: consumer.HeaderReason, Value: []byte("stale")}, {Key: "h", Value: nil}, {Key: "h", Value: []byte{}},
		}},
		kafkago.Message{Value: []byte("v\xff")})
	d := deadLetters(t, kafka.DeadLetterConfig{Brokers: dead.Brokers, Topic: dead.Name})
	source := kafkatest.Start(t, from.Config())
	began := time.Now().Add(-time.Second)
	var sent []kafkatest.Delivery
	for range 3 {
		sent = append(sent, source.Next())
		publishSoon(t, d, sent[len(sent)-1].Message)
	}
	got := map[string]kafkatest.Delivery{}
	reader := kafkatest.Start(t, dead.Config())
	for range 3 {
		one := reader.Next()
		got[one.Headers.Get(consumer.HeaderPosition)] = one
	}
	for i, want := range sent {
		one, ok := got[want.Position]
		if !ok {
			t.Fatalf("%s is missing", want.Position)
		}
		if !equalNil(one.Key, want.Key) || !equalNil(one.Body, want.Body) {
			t.Errorf("message %d: got %#v %#v, want %#v %#v", i, one.Key, one.Body, want.Key, want.Body)
		}
		if one.Time.Before(began) {
			t.Errorf("message %d is of %v: retention could delete it at once", i, one.Time)
		}
		for name, want := range map[string]string{
			consumer.HeaderReason: "permanent", consumer.HeaderError: "no such account", consumer.HeaderAttempts: "3",
			consumer.HeaderTime: want.Time.UTC().Format(time.RFC3339Nano),
		} {
			if v := one.Headers.Values(name); len(v) != 1 || string(v[0]) != want {
				t.Errorf("message %d: header %s is %q, want %q", i, name, v, want)
			}
		}
	}
	if h := fmt.Sprintf("%#v", got[sent[1].Position].Headers.Values("h")); h != fmt.Sprintf("%#v", [][]byte{[]byte("one"), nil, {}}) {
		t.Errorf("headers are %s", h)
	}
}

func equalNil(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }

// Messages of one key are in one partition, in their order.
func TestDeadLetterKeepsTheOrderOfAKey(t *testing.T) {
	t.Parallel()
	dead := kafkatest.New(t, kafkatest.Brokers(t), 5)
	d := deadLetters(t, kafka.DeadLetterConfig{Brokers: dead.Brokers, Topic: dead.Name})
	const keys, each = 8, 4
	for i := range keys * each {
		m := &consumer.Message{Key: fmt.Appendf(nil, "k%d", i%keys), Body: fmt.Append(nil, i/keys)}
		publishSoon(t, d, m)
	}
	next, at := map[string]int{}, map[string]string{}
	reader := kafkatest.Start(t, dead.Config())
	used := map[string]bool{}
	for range keys * each {
		m := reader.Next()
		key := string(m.Key)
		if string(m.Body) != fmt.Sprint(next[key]) {
			t.Errorf("%s: got %s, want %d", key, m.Body, next[key])
		}
		if p, ok := at[key]; ok && p != m.Stream.Name() {
			t.Errorf("%s is in %s and %s", key, p, m.Stream.Name())
		}
		next[key]++
		at[key], used[m.Stream.Name()] = m.Stream.Name(), true
	}
	if len(used) < 2 {
		t.Error("all keys are in one partition")
	}
}

// A topic that is missing is reported, and not created; once it is there, it is
// written to.
func TestDeadLetterMissingTopic(t *testing.T) {
	t.Parallel()
	dead := kafkatest.New(t, kafkatest.Brokers(t), 1)
	name := dead.Name + "-later"
	d := deadLetters(t, kafka.DeadLetterConfig{Brokers: dead.Brokers, Topic: name})
	m := &consumer.Message{Body: []byte("x")}
	for range 2 {
		for _, err := range []error{d.Check(t.Context(), consumer.Plan{}), publishDead(t, d, m)} {
			wantText(t, err, fmt.Sprintf("the topic %q of the dead letters does not exist", name), "create it")
			if errors.Is(err, consumer.ErrRefused) {
				t.Error("it is the message's fault")
			}
		}
	}
	later := *dead
	later.Name = name
	later.Create(1)
	t.Cleanup(func() {
		_, _ = dead.API.DeleteTopics(context.Background(), &kafkago.DeleteTopicsRequest{Topics: []string{name}})
	})
	publishSoon(t, d, m)
	if err := d.Check(t.Context(), consumer.Plan{}); err != nil {
		t.Error(err)
	}
}

func TestDeadLetterRefused(t *testing.T) {
	t.Parallel()
	dead := kafkatest.New(t, kafkatest.Brokers(t), 1) // which takes 4 MB
	d := deadLetters(t, kafka.DeadLetterConfig{Brokers: dead.Brokers, Topic: dead.Name})
	publishSoon(t, d, &consumer.Message{Body: []byte("x")})
	err := publishDead(t, d, &consumer.Message{Body: make([]byte, 5_000_000)})
	wantText(t, err, "max.message.bytes")
	if !errors.Is(err, consumer.ErrRefused) || errors.Is(err, consumer.ErrOutage) {
		t.Errorf("got %v, want ErrRefused only", err)
	}
	dead.Configure("cleanup.policy", "compact")
	kafkatest.Eventually(t, "a message without a key is refused", func() bool {
		return errors.Is(publishDead(t, d, &consumer.Message{Body: []byte("x")}), consumer.ErrRefused)
	})
}

// deafConn loses what the broker answers while deaf is set.
type deafConn struct {
	net.Conn
	deaf *atomic.Bool
}

func (c deafConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.deaf.Load() {
		return 0, io.EOF
	}
	return n, err
}

// A reply that is lost is no success, though the message may be there.
func TestDeadLetterReplyLost(t *testing.T) {
	t.Parallel()
	dead := kafkatest.New(t, kafkatest.Brokers(t), 1)
	var deaf atomic.Bool
	d := deadLetters(t, kafka.DeadLetterConfig{Brokers: dead.Brokers, Topic: dead.Name,
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, address)
			return deafConn{conn, &deaf}, err
		}})
	m := &consumer.Message{Key: []byte("k"), Body: []byte("first")}
	publishSoon(t, d, m)
	deaf.Store(true)
	m.Body = []byte("second")
	err := publishDead(t, d, m)
	if !errors.Is(err, consumer.ErrOutage) {
		t.Fatalf("got %v, want ErrOutage", err)
	}
	deaf.Store(false)
	publishSoon(t, d, m)
	reader := kafkatest.Start(t, dead.Config())
	for found := false; !found; {
		found = string(reader.Next().Body) == "second"
	}
}

// Close leaves nothing behind (goleak), and a Publish after it connects again.
func TestDeadLetterCloseAndAgain(t *testing.T) {
	t.Parallel()
	dead := kafkatest.New(t, kafkatest.Brokers(t), 1)
	d := deadLetters(t, kafka.DeadLetterConfig{Brokers: dead.Brokers, Topic: dead.Name})
	m := &consumer.Message{Body: []byte("x")}
	publishSoon(t, d, m)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 10 {
				if err := publishDead(t, d, m); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 5 {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	all.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.Publish(ctx, consumer.Failure{Message: m}); err == nil {
		t.Error("published after its context had ended")
	}
}

func TestDeadLetterConfigMistakes(t *testing.T) {
	t.Parallel()
	_, err := kafka.NewDeadLetter(kafka.DeadLetterConfig{Topic: "a b", DialTimeout: -1})
	wantText(t, err, "DeadLetterConfig.Brokers", "DeadLetterConfig.Topic is", "DeadLetterConfig.DialTimeout")
	wantText(t, new(kafka.DeadLetter).Validate(), "make the dead letters with NewDeadLetter")
}
