package e2e

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/internal/faultproxy"
)

// Handlers fail and panic, and the connection to RabbitMQ is cut, among 2 000
// messages of 40 keys.
func TestOrderPerKeyWithWorkersUnderFailures(t *testing.T) {
	t.Parallel()
	const total, keys, workers = 2000, 40, 8
	w := newWorld(t)
	all := ids("", total)
	for start := 0; start < total; start += 500 {
		ps := make([]amqp.Publishing, 500)
		for i := range ps {
			n := start + i
			ps[i] = amqp.Publishing{MessageId: all[n], Type: fmt.Sprint("key", n%keys)}
		}
		w.q.publish(ps...)
	}
	proxy, through := faultproxy.InFrontOf(t, w.q.url)
	busiest := &peak{}
	p := w.parts()
	p.Workers = workers
	p.Rabbit.URL, p.Rabbit.BackoffMax = through, 20*time.Millisecond
	p.Rabbit.Key = func(d *amqp.Delivery) []byte { return []byte(d.Type) }
	p.Handler = busiest.around(failing(w.effect()))
	k := w.start(p)
	for _, n := range []int{total / 4, total / 2} {
		eventually(t, "time for a cut", func() bool { return w.db.Processed(t) >= n })
		proxy.Cut()
	}
	w.requireSettled(all...)
	k.stop()
	w.q.requireReady(0)
	require.Zero(t, w.db.Int(t, `select count(*) from (
		select message_id::int as this, lag(message_id::int) over (partition by key order by n) as last from %s.effects
	) as pairs where this <= last`), "messages that overtook another of their key")
	require.Equal(t, keys, w.db.Int(t, "select count(distinct key) from %s.effects"))
	require.Positive(t, w.log.count(lineFailed), "the failures that this is about")
	require.Greater(t, busiest.max.Load(), int32(2), "handlers at once")
}

// failing fails every 37th message once after its effect, and panics twice on
// every 101st.
func failing(h consumer.HandlerFunc[pgx.Tx]) consumer.HandlerFunc[pgx.Tx] {
	return func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
		if err := h(ctx, tx, m); err != nil {
			return err
		}
		n, err := strconv.Atoi(m.ID)
		switch {
		case err != nil:
			return err
		case n%37 == 0 && m.Attempt == 1:
			return errors.New("no")
		case n%101 == 0 && m.Attempt <= 2:
			panic("no")
		}
		return nil
	}
}

// peak notes how many handlers were at work at once.
type peak struct{ now, max atomic.Int32 }

func (p *peak) around(h consumer.HandlerFunc[pgx.Tx]) consumer.HandlerFunc[pgx.Tx] {
	return func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
		now := p.now.Add(1)
		defer p.now.Add(-1)
		for seen := p.max.Load(); now > seen && !p.max.CompareAndSwap(seen, now); {
			seen = p.max.Load()
		}
		return h(ctx, tx, m)
	}
}
