package e2e

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"
)

// A worker that is killed between the broker's confirmation of a dead letter and
// the acknowledgement of the message leaves both, and no row. The redelivery
// becomes a second dead letter. Sent back, both of them have one effect.
func TestDeadLetterKilledBeforeTheAcknowledgement(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dead := newQueue(t, w.q.url)
	w.q.send("a")
	spec := childSpec{FailAlways: true, DeadQueue: dead.name, HoldAck: true}
	c := w.startChild(spec)
	c.expect("acking a")
	require.Equal(t, 1, dead.ready(), "it was confirmed before")
	c.kill()
	w.q.awaitNoConsumer()
	w.q.requireReady(1)
	require.Zero(t, w.db.Processed(t), "a row would keep it from running again")
	require.Zero(t, w.setAside())

	spec.HoldAck = false
	c = w.startChild(spec)
	eventually(t, "a second dead letter", func() bool { return dead.ready() == 2 })
	c.terminate() // and it leaves no goroutine behind
	require.Zero(t, c.exitCode())
	w.q.requireReady(0)
	require.Zero(t, w.effects())

	for range 2 {
		m, ok, err := dead.ch.Get(dead.name, true)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, "failed", m.Headers["ackafter-reason"])
		w.q.publish(amqp.Publishing{MessageId: m.MessageId, Headers: m.Headers, Body: m.Body})
	}
	k := w.start(w.parts())
	eventually(t, "both are settled", func() bool { return w.effects() == 1 && k.held() == 0 && w.q.ready() == 0 })
	k.stop()
	w.q.requireReady(0)
	w.requireEffects("a")
}
