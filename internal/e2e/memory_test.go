package e2e

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
)

// A process of its own, whose heap no other test fills.
func TestBacklogDoesNotFillTheMemory(t *testing.T) {
	t.Parallel()
	const backlog, size, prefetch = 20_000, 10 << 10, 250
	w := newWorld(t)
	w.flood(backlog, size)
	c := w.startChild(childSpec{HoldHandler: true, Workers: 2})
	c.next()
	c.next()
	w.q.requireReady(backlog - prefetch)
	// The prefetch is 2.5 MiB, the backlog 195.
	require.Less(t, c.heap(), 16<<20, "live bytes while the handlers are blocked")
	require.Equal(t, backlog-prefetch, w.q.ready(), "nothing more is handed out meanwhile")
}

// flood publishes n messages without ids, unconfirmed, which is fast.
func (w *world) flood(n, size int) {
	w.t.Helper()
	conn, err := amqp.Dial(w.q.url)
	require.NoError(w.t, err)
	defer conn.Close()
	ch, err := conn.Channel()
	require.NoError(w.t, err)
	body := make([]byte, size)
	for _, id := range ids("m", n) {
		require.NoError(w.t, ch.PublishWithContext(w.t.Context(), "", w.q.name, true, false,
			amqp.Publishing{MessageId: id, Body: body}))
	}
	w.q.requireReady(n)
}

func TestBufferBoundsWhatTheRunnerHolds(t *testing.T) {
	t.Parallel()
	const backlog, prefetch, buffer = 200, 50, 6
	w := newWorld(t)
	all := ids("m", backlog)
	w.q.send(all...)
	begun, finish := make(chan struct{}, backlog), make(chan struct{})
	p := w.parts()
	p.Workers, p.Buffer, p.Rabbit.Prefetch = 2, buffer, prefetch
	effect := w.effect()
	p.Handler = consumer.HandlerFunc[pgx.Tx](func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
		begun <- struct{}{}
		w.hold(finish)
		return effect(ctx, tx, m)
	})
	k := w.start(p)
	await(t, "the first handler begins", begun)
	await(t, "the second handler begins", begun)
	w.q.requireReady(backlog - prefetch)
	// It is filled again once half of it is empty.
	eventually(t, "the buffer is used", func() bool { return k.Health().Streams[0].Held > buffer/2 })
	for range 20 {
		require.LessOrEqual(t, k.Health().Streams[0].Held, buffer)
		require.Equal(t, backlog-prefetch, w.q.ready())
	}
	close(finish)
	w.requireSettled(all...)
	k.stop()
	w.q.requireReady(0)
}
