//go:build unix

package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/internal/pgtest"
)

func TestRabbitMQStoppedAndKilled(t *testing.T) {
	t.Parallel()
	s := privateRabbitMQ(t)
	w := newWorldOn(t, pgtest.URL(t), s.URL())
	p := w.parts()
	p.Workers = 4
	p.Handler = w.slowEffect(5 * time.Millisecond)
	k := w.start(p)
	var sent []string
	for name, end := range map[string]func(context.Context) error{"stopped": s.Stop, "killed": s.Kill} {
		before := len(sent)
		batch := ids(name, 500)
		w.q.send(batch...)
		sent = append(sent, batch...)
		eventually(t, "the load is under way", func() bool { return w.db.Processed(t) > before+50 })
		call(t, end)
		require.Less(t, w.db.Processed(t), len(sent), "all done before the server went: no test of it")
		k.staysPaused(0)
		call(t, s.Start)
		eventually(t, "the worker has resumed", func() bool { return k.Health().OK() })
		w.q.connect()
		w.q.send(name + " and back")
		sent = append(sent, name+" and back")
		w.requireSettled(sent...)
	}
	k.stop()
	w.q.requireReady(0)
	w.requireNoAttemptCounted()
	require.Zero(t, w.log.count(linePaused), "the database was there all the time")
}

func TestQueueDeletedAndMadeAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	begun, finish := make(chan struct{}), make(chan struct{})
	effect := w.effect()
	p := w.parts()
	p.Handler = consumer.HandlerFunc[pgx.Tx](func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
		if m.ID == "held" {
			close(begun)
			w.hold(finish)
		}
		return effect(ctx, tx, m)
	})
	k := w.start(p)
	w.q.send("before")
	w.requireSettled("before")
	w.q.send("held")
	await(t, "a handler is at work", begun)
	w.q.delete()
	close(finish)
	eventually(t, "paused, with the queue in the reason", func() bool {
		h := k.Health()
		return h.State == consumer.Paused && strings.Contains(h.Reason, w.q.name) && strings.Contains(h.Reason, "does not exist")
	})
	w.q.declare()
	w.q.send("after")
	w.requireSettled("before", "held", "after")
	eventually(t, "healthy again", func() bool { return k.Health().OK() })
	k.stop()
	w.q.requireReady(0)
	w.requireNoAttemptCounted()
}
