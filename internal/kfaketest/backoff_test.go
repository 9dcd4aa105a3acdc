package kfaketest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/internal/kafkatest"
)

// Joining fails at first. The waits begin with BackoffMin, not with BackoffMax.
func TestJoinBacksOff(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	topic := kafkatest.New(t, c.ListenAddrs(), 1)
	topic.Send(0, "a")
	var joins atomic.Int32
	c.ControlKey(int16(kmsg.JoinGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if joins.Add(1) <= 3 {
			return nil, errors.New("away"), true
		}
		return nil, nil, false
	})
	config := topic.Config()
	config.BackoffMin, config.BackoffMax = time.Millisecond, time.Hour
	kafkatest.Start(t, config).Want("a")
}

// A serve that gives up at once does not make the group rebalance without end.
func TestGivingUpBacksOff(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	topic := kafkatest.New(t, c.ListenAddrs(), 1)
	config := topic.Config()
	config.BackoffMin, config.BackoffMax = 200*time.Millisecond, 200*time.Millisecond
	source := newSource(t, config)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var began time.Time
	served := 0
	err := source.Run(ctx, func(context.Context, consumer.Stream) error {
		if served++; served == 1 {
			began = time.Now()
		} else if served == 5 {
			cancel()
		}
		return nil
	})
	if took := time.Since(began); err != nil || took < 4*config.BackoffMin/2 {
		t.Errorf("5 streams came within %v (%v), with a BackoffMin of %v", took, err, config.BackoffMin)
	}
}
