// Package brokertest is the contract of consumer.Source and consumer.Stream as
// a test suite. An adapter for a broker passes it, against the real broker:
//
//	func TestContract(t *testing.T) {
//		brokertest.Run(t, func(t *testing.T) brokertest.Harness { … })
//	}
//
// The suite waits for conditions and never for a length of time, except that
// it gives up on a condition after Limit.
package brokertest

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ackafter/ackafter/consumer"
)

// Limit is how long the suite waits for anything before it fails.
const Limit = 30 * time.Second

// Harness is one subscription that nobody else uses, empty at first, and what
// the suite needs to do around it.
type Harness struct {
	// Source is under test.
	Source consumer.Source
	// Publish makes messages arrive at the subscription, in order, and
	// returns when the broker is sure to have them. It carries Key and Body,
	// and whatever Features declares.
	Publish func(ctx context.Context, ms ...*consumer.Message) error
	// Disconnect takes every stream away, as the broker or the network would,
	// and returns when that has happened. The source is expected to notice
	// and to come back by itself.
	Disconnect func(ctx context.Context) error
	// Features is what the broker can do.
	Features Features

	// Waiting returns how many messages the broker holds that it has not
	// handed out. Nil means that it cannot tell; then boundedness is not
	// tested.
	Waiting func(ctx context.Context) (int, error)
	// Bound is how many messages the source may hold without an
	// acknowledgement. It goes with Waiting; keep it small, say 20.
	Bound int
}

// Features declares what a broker can do beyond keys and bodies. The zero
// value declares nothing, and nothing of it is tested.
type Features struct {
	ID          bool // Message.ID arrives
	Type        bool // Message.Type arrives
	Headers     bool // Message.Headers arrive, values of any bytes
	Redelivered bool // a message that was delivered before is marked
	// SingleAck says that each acknowledgement counts by itself. Without it
	// a message counts as acknowledged once all before it on its stream are.
	SingleAck bool
	// Time is the precision with which Message.Time arrives; zero means that
	// it does not.
	Time time.Duration
}

// Run tests the source that factory returns; it is called for each case, and
// its t.Cleanup runs after the case. The cases run in parallel. At the end no
// goroutine may be left that was not there at the start, so call Run from a
// test that is not itself parallel.
func Run(t *testing.T, factory func(t *testing.T) Harness) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Run("cases", func(t *testing.T) {
		for _, c := range cases() {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				h := factory(t)
				if h.Source == nil || h.Publish == nil || h.Disconnect == nil {
					t.Fatal("brokertest.Harness needs Source, Publish and Disconnect")
				}
				c.test(t, h)
			})
		}
	})
	if err := goleak.Find(before); err != nil {
		t.Errorf("Source.Run must return only when everything it started has ended, see consumer.Source: %v", err)
	}
}

type testCase struct {
	name string
	test func(*testing.T, Harness)
}

func cases() []testCase {
	return []testCase{
		{"delivers everything in the order of its key", testDelivery},
		{"body arrives byte for byte", testBodies},
		{"properties arrive", testProperties},
		{"headers arrive", testHeaders},
		{"next returns what waits and no more than max", testNextBatch},
		{"next blocks for the first message and ends with its context", testNextBlocks},
		{"unacknowledged messages come again after a restart", testUnackedAfterRestart},
		{"unacknowledged messages come again after a disconnect", testUnackedAfterDisconnect},
		{"acknowledged messages never come again", testAcked},
		{"a gap in the acknowledgements comes again", testAckGap},
		{"an acknowledgement on a lost stream is an error and has no effect", testLateAck},
		{"a released message comes again at once", testRelease},
		{"the context of serve ends with its stream", testLost},
		{"what was begun can be acknowledged after the end", testAckWhileStopping},
		{"a stream that serve gives up is followed by another", testServeLeaves},
		{"an error of serve ends run", testServeError},
		{"the end of the context ends run", testEnd},
		{"the backlog stays in the broker", testBounded},
		{"health tells whether the source is connected", testHealth},
	}
}
