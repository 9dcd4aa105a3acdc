package kfaketest

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/internal/kafkatest"
)

// A group that this must not join ends Run: that does not pass by itself.
func TestForbiddenGroupEndsRun(t *testing.T) {
	t.Parallel()
	read := kfake.ACL{
		Resource: kmsg.ACLResourceTypeTopic, Name: "t", Pattern: kmsg.ACLResourcePatternTypeLiteral,
		Operation: kmsg.ACLOperationRead, Allow: true,
	}
	c := newCluster(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.SeedTopics(1, "t"), kfake.User("PLAIN", "u", "u", read))
	topic := &kafkatest.Topic{T: t, Brokers: c.ListenAddrs(), Name: "t", Group: "g"}
	config := topic.Config()
	config.SASL = plain.Mechanism{Username: "u", Password: "u"}
	err := kafkatest.Start(t, config).Failed()
	if !strings.Contains(err.Error(), "grant Read on the group") || errors.Is(err, consumer.ErrOutage) {
		t.Errorf("Run: %v", err)
	}
}

// The coordinator does not answer the farewell: Run waits for a part of
// CloseTimeout, not for RequestTimeout.
func TestFarewellUnanswered(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	topic := kafkatest.New(t, c.ListenAddrs(), 1)
	topic.Send(0, "a")
	answer := make(chan struct{})
	c.ControlKey(int16(kmsg.LeaveGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.SleepControl(func() { <-answer })
		return nil, nil, false
	})
	config := topic.Config()
	config.CloseTimeout, config.RequestTimeout = 800*time.Millisecond, kafkatest.Limit
	w := kafkatest.Start(t, config)
	w.Want("a")
	began := time.Now()
	w.Stop()
	if took := time.Since(began); took < config.CloseTimeout/2 || took > config.CloseTimeout+kafkatest.Limit/10 {
		t.Errorf("it took %v to stop, with a CloseTimeout of %v", took, config.CloseTimeout)
	}
	close(answer)
}

// Connecting for the farewell hangs, whatever its context says. Run waits for
// CloseTimeout, and for no more.
func TestFarewellHangs(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	topic := kafkatest.New(t, c.ListenAddrs(), 1)
	topic.Send(0, "a")
	var hangs atomic.Bool
	release := make(chan struct{})
	defer close(release)
	config := topic.Config()
	config.CloseTimeout = 200 * time.Millisecond
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if hangs.Load() {
			<-release
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	w := kafkatest.Start(t, config)
	w.Want("a")
	kafkatest.Eventually(t, "it is committed", func() bool { return topic.Committed(0) == 1 })
	hangs.Store(true)
	began := time.Now()
	w.Stop()
	if took := time.Since(began); took > kafkatest.Limit/3 {
		t.Errorf("it took %v to stop, with a CloseTimeout of %v", took, config.CloseTimeout)
	}
}
