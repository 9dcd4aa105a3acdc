package e2e

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"
)

// queue is a durable queue of the test's own, with a connection beside the one
// of the worker.
type queue struct {
	t    *testing.T
	url  string
	name string
	ch   *amqp.Channel
}

// newQueue declares a queue, which is deleted at the end of the test.
func newQueue(t *testing.T, url string) *queue {
	t.Helper()
	q := &queue{t: t, url: url, name: "ackafter-e2e-" + rand.Text()}
	q.connect()
	q.declare()
	t.Cleanup(func() {
		if !q.ch.IsClosed() { // else the server is gone, or was restarted
			q.delete()
		}
	})
	return q
}

// connect opens a channel, closed at the end of the test; again after the
// server was restarted.
func (q *queue) connect() {
	q.t.Helper()
	conn, err := amqp.Dial(q.url)
	require.NoError(q.t, err)
	q.t.Cleanup(func() { _ = conn.Close() })
	q.ch, err = conn.Channel()
	require.NoError(q.t, err)
	require.NoError(q.t, q.ch.Confirm(false))
}

func (q *queue) declare() {
	q.t.Helper()
	_, err := q.ch.QueueDeclare(q.name, true, false, false, false, nil)
	require.NoError(q.t, err)
}

func (q *queue) delete() {
	q.t.Helper()
	_, err := q.ch.QueueDelete(q.name, false, false, false)
	require.NoError(q.t, err)
}

// ready returns how many messages the broker has not handed out, or had back.
func (q *queue) ready() int {
	q.t.Helper()
	state, err := q.ch.QueueDeclarePassive(q.name, true, false, false, false, nil)
	require.NoError(q.t, err)
	return state.Messages
}

// awaitNoConsumer waits until the broker has noticed that a worker is gone, and
// has taken back what that had.
func (q *queue) awaitNoConsumer() {
	q.t.Helper()
	eventually(q.t, "the queue has no consumer", func() bool {
		state, err := q.ch.QueueDeclarePassive(q.name, true, false, false, false, nil)
		require.NoError(q.t, err)
		return state.Consumers == 0
	})
}

// requireReady waits until so many messages are ready. None is said only of a
// worker that has stopped, and is then true at once: the broker takes back
// what was not acknowledged before it answers a channel's close.
func (q *queue) requireReady(n int) {
	q.t.Helper()
	if n == 0 {
		require.Zero(q.t, q.ready(), "messages left in the queue")
		return
	}
	eventually(q.t, "messages ready in the queue", func() bool { return q.ready() == n })
}

// send publishes one message for each id, with the id as its body.
func (q *queue) send(ids ...string) {
	q.t.Helper()
	ps := make([]amqp.Publishing, len(ids))
	for i, id := range ids {
		ps[i] = amqp.Publishing{MessageId: id, Body: []byte(id)}
	}
	q.publish(ps...)
}

// publish returns when the broker has confirmed every message.
func (q *queue) publish(ps ...amqp.Publishing) {
	q.t.Helper()
	require.NoError(q.t, q.tryPublish(ps...))
}

func (q *queue) tryPublish(ps ...amqp.Publishing) error {
	ctx, cancel := context.WithTimeout(q.t.Context(), limit)
	defer cancel()
	confirmations := make([]*amqp.DeferredConfirmation, len(ps))
	for i, p := range ps {
		p.DeliveryMode = amqp.Persistent
		var err error
		confirmations[i], err = q.ch.PublishWithDeferredConfirmWithContext(ctx, "", q.name, true, false, p)
		if err != nil {
			return err
		}
	}
	for _, c := range confirmations {
		if acked, err := c.WaitContext(ctx); err != nil || !acked {
			return errors.Join(err, errors.New("not confirmed"))
		}
	}
	return nil
}
