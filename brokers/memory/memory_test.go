package memory_test

import (
	"context"
	"fmt"
	"testing"

	"go.uber.org/goleak"

	"github.com/ackafter/ackafter/brokers/brokertest"
	"github.com/ackafter/ackafter/brokers/memory"
	"github.com/ackafter/ackafter/consumer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestContract(t *testing.T) {
	for _, streams := range []int{1, 4} {
		t.Run(fmt.Sprintf("%d streams", streams), func(t *testing.T) {
			brokertest.Run(t, func(*testing.T) brokertest.Harness {
				return harness(memory.NewWithConfig(memory.Config{Streams: streams}))
			})
		})
	}
}

func harness(b *memory.Broker) brokertest.Harness {
	return brokertest.Harness{
		Source: b,
		Publish: func(_ context.Context, ms ...*consumer.Message) error {
			b.Publish(ms...)
			return nil
		},
		Disconnect: func(context.Context) error {
			b.Disconnect()
			return nil
		},
		Features: brokertest.Features{
			ID: true, Type: true, Headers: true, Redelivered: true, SingleAck: true, Time: 1,
		},
	}
}
