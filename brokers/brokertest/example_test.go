package brokertest_test

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"github.com/ackafter/ackafter/brokers/brokertest"
	"github.com/ackafter/ackafter/brokers/memory"
	"github.com/ackafter/ackafter/consumer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// An adapter proves its contract by one test like this. The harness says how
// to reach the broker past the source, and what the broker can do.
func ExampleRun() {
	contract := func(t *testing.T) { // func TestContract(t *testing.T)
		brokertest.Run(t, func(t *testing.T) brokertest.Harness {
			broker := memory.New()
			return brokertest.Harness{
				Source: broker,
				Publish: func(_ context.Context, ms ...*consumer.Message) error {
					broker.Publish(ms...)
					return nil
				},
				Disconnect: func(context.Context) error {
					broker.Disconnect()
					return nil
				},
				Features: brokertest.Features{ID: true, Type: true, Headers: true, SingleAck: true, Redelivered: true, Time: 1},
			}
		})
	}
	_ = contract
}
