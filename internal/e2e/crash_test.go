package e2e

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
)

func TestKilledBetweenCommitAndAckTakesEffectOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.q.send("a")
	c := w.startChild(childSpec{HoldAck: true})
	c.expect("acking a")
	w.requireEffects("a")
	c.kill()
	w.q.requireReady(1)

	var handled atomic.Int32
	p := w.parts()
	p.Handler = consumer.HandlerFunc[pgx.Tx](func(context.Context, pgx.Tx, *consumer.Message) error {
		handled.Add(1)
		return nil
	})
	k := w.start(p)
	eventually(t, "the redelivery is found to be a duplicate", func() bool { return w.log.count(lineDuplicate) == 1 })
	k.stop()
	w.requireEffects("a")
	w.q.requireReady(0)
	require.Zero(t, handled.Load(), "the handler ran again")
}

func TestKilledInTheHandlerTakesEffectOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.q.send("a")
	c := w.startChild(childSpec{HoldHandler: true})
	c.expect("begun a")
	w.requireNoTrace()
	c.kill()

	k := w.start(w.parts())
	w.requireSettled("a")
	k.stop()
	w.q.requireReady(0)
}
