package e2e

import (
	"context"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/internal/faultproxy"
)

// stalling returns a worker whose way to the database can be stalled, with
// limits that are short enough to wait for.
func (w *world) stalling() (*faultproxy.Proxy, parts) {
	proxy, through := faultproxy.InFrontOf(w.t, w.databaseURL)
	context.AfterFunc(w.t.Context(), proxy.Resume) // or a failed test would not end
	p := w.parts()
	p.DatabaseURL = through
	p.HandlerTimeout = time.Second
	p.InboxConfig.LockTimeout = 200 * time.Millisecond
	p.InboxConfig.ClaimTimeout = 500 * time.Millisecond
	p.InboxConfig.CommitTimeout = 500 * time.Millisecond
	return proxy, p
}

func TestNetworkToPostgreSQLStallsUnderLoad(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	proxy, p := w.stalling()
	p.Workers, p.HandlerTimeout = 4, 2*time.Second
	p.Handler = w.slowEffect(2 * time.Millisecond)
	all := ids("m", 400)
	w.q.send(all...)
	k := w.start(p)
	eventually(t, "the load is under way", func() bool { return w.db.Processed(t) > 20 })
	proxy.Stall()
	k.staysPaused(2 * time.Second)
	require.Less(t, w.db.Processed(t), len(all), "all done before the stall: no test of it")
	proxy.Resume()
	w.requireSettled(all...)
	eventually(t, "the worker has resumed", func() bool { return k.Health().OK() })
	k.stop()
	w.q.requireReady(0)
	w.requireNoAttemptCounted()
}

// The handler's own time limit ends first: a network that stalls under it is
// still not its fault.
func TestNetworkToPostgreSQLStallsUnderAHandler(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	proxy, p := w.stalling()
	effect := w.effect()
	stalled := make(chan struct{})
	p.Handler = consumer.HandlerFunc[pgx.Tx](func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
		select {
		case <-stalled:
		default:
			proxy.Stall()
			close(stalled)
		}
		return effect(ctx, tx, m)
	})
	w.q.send("a")
	k := w.start(p)
	await(t, "the handler finds the network stalled", stalled)
	k.staysPaused(500 * time.Millisecond)
	w.requireNoTrace()
	proxy.Resume()
	w.requireSettled("a")
	k.stop()
	w.q.requireReady(0)
	w.requireNoAttemptCounted()
}

// A handler that times out while the runner is paused is not at fault, although
// the database answers again by the time that this is judged.
func TestNetworkToPostgreSQLIsBackWhenAHandlerTimesOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	proxy, p := w.stalling()
	p.Workers, p.HandlerTimeout = 2, 2*time.Second
	effect := w.effect()
	begun, stalled, timedOut := make(chan struct{}), make(chan struct{}), make(chan struct{})
	begin := sync.OnceFunc(func() { close(begun) })
	stall := sync.OnceFunc(func() { proxy.Stall(); close(stalled) })
	ended := sync.OnceFunc(func() { close(timedOut) })
	p.Handler = consumer.HandlerFunc[pgx.Tx](func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
		if m.ID == "pauses" { // its commit finds out
			w.hold(begun)
			defer stall()
			return effect(ctx, tx, m)
		}
		begin()
		w.hold(stalled)
		defer ended()
		return effect(ctx, tx, m)
	})
	w.q.send("times out", "pauses")
	k := w.start(p)
	await(t, "the handler times out", timedOut)
	require.Equal(t, consumer.Paused, k.Health().State)
	proxy.Resume()
	w.requireSettled("times out", "pauses")
	k.stop()
	w.q.requireReady(0)
	w.requireNoAttemptCounted()
}

// Nobody learns in time what became of the commit, which arrives in the end.
func TestNetworkToPostgreSQLStallsAtTheCommit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	proxy, p := w.stalling()
	effect := w.effect()
	stalled := make(chan struct{})
	stallOnce := sync.OnceFunc(func() {
		proxy.Stall()
		close(stalled)
	})
	p.Handler = consumer.HandlerFunc[pgx.Tx](func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
		err := effect(ctx, tx, m)
		if m.ID == "stalled" {
			stallOnce()
		}
		return err
	})
	k := w.start(p)
	w.q.send("first") // after it, the commit takes no round trip to prepare it
	w.requireSettled("first")
	w.q.send("stalled")
	await(t, "the handler has done its work", stalled)
	k.staysPaused(500 * time.Millisecond)
	require.Positive(t, w.log.count("outcome of the commit unknown"))
	w.requireEffects("first")
	proxy.Resume()
	w.requireSettled("first", "stalled")
	eventually(t, "the worker has resumed", func() bool { return k.Health().OK() })
	k.stop()
	w.q.requireReady(0)
	w.requireNoAttemptCounted()
}

func TestNetworkToRabbitMQStalls(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u, err := url.Parse(w.q.url)
	require.NoError(t, err)
	query := u.Query()
	query.Set("heartbeat", "1")
	u.RawQuery = query.Encode()
	proxy, through := faultproxy.InFrontOf(t, u.String())
	context.AfterFunc(t.Context(), proxy.Resume) // or a failed test would not end
	p := w.parts()
	p.Workers = 4
	p.Rabbit.URL = through
	p.Rabbit.DialTimeout, p.Rabbit.WriteTimeout, p.Rabbit.CloseTimeout = 500*time.Millisecond, 500*time.Millisecond, 500*time.Millisecond
	p.Handler = w.slowEffect(5 * time.Millisecond)
	all := ids("m", 400)
	w.q.send(all...)
	k := w.start(p)
	eventually(t, "the load is under way", func() bool { return w.db.Processed(t) > 20 })
	proxy.Stall()
	k.staysPaused(time.Second)
	proxy.Resume()
	w.requireSettled(all...)
	eventually(t, "the worker has resumed", func() bool { return k.Health().OK() })
	w.q.send("after")
	w.requireSettled(append(all, "after")...)
	// What came again, of the lost connection, may be overtaken by what comes later.
	eventually(t, "nothing is left", func() bool { return k.held() == 0 && w.q.ready() == 0 })
	k.stop()
	w.q.requireReady(0)
	w.requireNoAttemptCounted()
}
