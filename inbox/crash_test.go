package inbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/inbox"
	"github.com/ackafter/ackafter/internal/faultproxy"
	"github.com/ackafter/ackafter/internal/pgtest"
)

// Networks that fail are no crash, however often they do, and wherever the
// message is at that time.
func TestCrashLoopOutagesAreNoCrash(t *testing.T) {
	b := newRunnerBench(t)
	b.cfg.CrashLimit = 2
	b.cfg.Probe = consumer.Backoff{Min: time.Millisecond, Max: 10 * time.Millisecond}
	b.cfg.Source = suspicious{b.broker, func(*consumer.Message) bool { return true }}
	begun := make(chan *faultproxy.Proxy)
	finish := make(chan bool)
	for range 2 {
		proxy, through := faultproxy.InFrontOf(t, pgtest.URL(t))
		pool, err := pgxpool.New(b.ctx, through)
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		b.cfg.Inbox, err = inbox.NewWithConfig(pool, inbox.Config{Schema: b.Schema})
		require.NoError(t, err)
		b.cfg.Handler = consumer.HandlerFunc[pgx.Tx](func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
			begun <- proxy
			if !<-finish {
				return errHandler
			}
			return b.record(ctx, tx, []*consumer.Message{m})
		})
		b.start()
	}
	b.broker.Publish(message("m1", "x"))
	var before *faultproxy.Proxy
	for range 6 {
		var proxy *faultproxy.Proxy
		select {
		case proxy = <-begun:
		case <-time.After(5 * time.Second):
			require.Fail(t, "not handled", b.Int(t, "select count(*) from %s.failed_messages where reason = 'crash'"))
		}
		if before != nil {
			before.Accept()
		}
		proxy.Refuse()
		proxy.Cut()
		b.broker.Disconnect()
		finish <- false
		before = proxy
	}
	<-begun
	finish <- true
	before.Accept()
	require.NoError(t, b.broker.Drained(b.ctx))
	b.requireAside(0)
	b.requireEffects(1)
	require.Eventually(t, func() bool { return b.Int(t, "select count(*) from %s.begun_attempts") == 0 }, 5*time.Second, 10*time.Millisecond)
}
