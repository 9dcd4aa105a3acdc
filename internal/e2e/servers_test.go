//go:build unix

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/internal/servers"
)

// serverLimit is for a private server to start or stop while all tests run.
const serverLimit = 2 * time.Minute

// privatePostgreSQL starts a server that a test may stop. Its role "locked" has
// a password, the role of its URL needs none.
func privatePostgreSQL(t *testing.T) *servers.PostgreSQL {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a PostgreSQL; -short leaves those out")
	}
	// Not t.TempDir(), which the server's user may not enter.
	dir, err := os.MkdirTemp("", "ackafter-e2e-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	hba := filepath.Join(dir, "pg_hba.conf")
	require.NoError(t, os.WriteFile(hba, []byte("host all locked 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n"), 0o644))
	ctx, cancel := context.WithTimeout(t.Context(), serverLimit)
	defer cancel()
	s, err := servers.StartPostgreSQL(ctx, t.TempDir(), servers.PostgreSQLConfig{Settings: map[string]string{"hba_file": hba}})
	require.NoError(t, err)
	closeAtEnd(t, s)
	return s
}

// privateRabbitMQ starts a server that a test may stop.
func privateRabbitMQ(t *testing.T) *servers.RabbitMQ {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a RabbitMQ; -short leaves those out")
	}
	ctx, cancel := context.WithTimeout(t.Context(), serverLimit)
	defer cancel()
	s, err := servers.StartRabbitMQ(ctx, t.TempDir(), servers.RabbitMQConfig{})
	require.NoError(t, err)
	closeAtEnd(t, s)
	return s
}

func closeAtEnd(t *testing.T, s interface{ Close() error }) {
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

func call(t *testing.T, do func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), serverLimit)
	defer cancel()
	require.NoError(t, do(ctx))
}

// load publishes a few messages every 20 ms until stop, which returns their
// ids.
func (w *world) load() (stop func() []string) {
	var ids []string
	ctx, cancel := context.WithCancel(w.t.Context())
	var done sync.WaitGroup
	var failed error
	done.Go(func() {
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		for failed == nil {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			ps := make([]amqp.Publishing, 3)
			for i := range ps {
				ids = append(ids, fmt.Sprint("load", len(ids)))
				ps[i] = amqp.Publishing{MessageId: ids[len(ids)-1]}
			}
			failed = w.q.tryPublish(ps...)
		}
	})
	w.t.Cleanup(func() { cancel(); done.Wait() })
	return func() []string {
		cancel()
		done.Wait()
		if !errors.Is(failed, context.Canceled) {
			require.NoError(w.t, failed)
		}
		return ids
	}
}

// staysPaused waits until a worker that was running is paused, and requires
// that it says so, and why, for as long as d.
func (k *worker) staysPaused(d time.Duration) {
	k.t.Helper()
	eventually(k.t, "the worker is paused", func() bool { return k.Health().State == consumer.Paused })
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for end := time.After(d); ; {
		select {
		case <-end:
			return
		case <-ticker.C:
			h := k.Health()
			require.Equal(k.t, consumer.Paused, h.State)
			require.NotEmpty(k.t, h.Reason)
			require.False(k.t, h.OK())
		}
	}
}
