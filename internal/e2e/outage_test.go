//go:build unix

package e2e

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/internal/servers"
)

// outageVariable makes the outage longer than the 20 s that it has time for
// otherwise: ACKAFTER_E2E_OUTAGE=60s.
const outageVariable = "ACKAFTER_E2E_OUTAGE"

func TestPostgreSQLOutage(t *testing.T) {
	t.Parallel()
	d := 20 * time.Second
	if text := os.Getenv(outageVariable); text != "" {
		var err error
		d, err = time.ParseDuration(text)
		require.NoError(t, err, outageVariable)
	}
	s := privatePostgreSQL(t)
	survivesOutage(t, s, s.Stop, d)
}

func TestPostgreSQLOutageByKill(t *testing.T) {
	t.Parallel()
	s := privatePostgreSQL(t)
	survivesOutage(t, s, s.Kill, time.Second)
}

// survivesOutage takes the database away from a worker under load.
func survivesOutage(t *testing.T, s *servers.PostgreSQL, end func(context.Context) error, d time.Duration) {
	w := newWorldOn(t, s.URL(), amqpURL(t))
	p := w.parts()
	p.Workers = 4
	// The server ends its sessions one by one, and one that is left would answer
	// a probe that comes at once.
	p.Probe = consumer.Backoff{Min: 2 * time.Second, Max: 2 * time.Second}
	p.Handler = w.slowEffect(5 * time.Millisecond)
	k := w.start(p)
	stopLoad := w.load()
	eventually(t, "the load is under way", func() bool { return w.db.Processed(t) > 20 })
	call(t, end)
	k.staysPaused(d)
	call(t, s.Start)
	eventually(t, "the worker has resumed", func() bool { return k.Health().OK() })
	sent := stopLoad()
	w.requireSettled(sent...)
	k.stop()
	w.q.requireReady(0)
	w.requireNoAttemptCounted()
	require.Zero(t, w.setAside())
	require.Equal(t, 1, w.log.count(linePaused), "lines that say paused")
	require.Equal(t, 1, w.log.count(lineResumed), "lines that say resumed")
	t.Logf("%d messages", len(sent))
}

// slowEffect is an effect that keeps its transaction open for d.
func (w *world) slowEffect(d time.Duration) consumer.HandlerFunc[pgx.Tx] {
	effect := w.effect()
	return func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
		if err := effect(ctx, tx, m); err != nil {
			return err
		}
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
		return ctx.Err()
	}
}
