package e2e

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/internal/faultproxy"
)

func TestCommitReplyLostTakesEffectOnce(t *testing.T) {
	t.Parallel()
	w, k := commitsCut(t, faultproxy.Reply, "COMMIT\x00")
	k.stop()
	require.Equal(t, cuts, w.log.count(lineDuplicate), "claimed again after a commit that had succeeded")
}

func TestCommitRequestLostTakesEffectOnce(t *testing.T) {
	t.Parallel()
	w, k := commitsCut(t, faultproxy.Request, "commit\x00")
	k.stop()
	require.Zero(t, w.log.count(lineDuplicate), "the first commit never reached the server")
}

const cuts = 5

// commitsCut runs a worker whose connection is cut at one commit after the
// other.
func commitsCut(t *testing.T, d faultproxy.Direction, needle string) (*world, *worker) {
	w := newWorld(t)
	proxy, through := faultproxy.InFrontOf(t, w.databaseURL)
	p := w.parts()
	p.DatabaseURL = through
	p.Pool = func(c *pgxpool.Config) {
		c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // which sends the text of each commit
	}
	k := w.start(p)
	w.q.send("first")
	w.requireSettled("first")
	sent := []string{"first"}
	for i := range cuts {
		trap := proxy.CutBefore(d, needle)
		id := fmt.Sprint("cut", i)
		w.q.send(id)
		sent = append(sent, id)
		await(t, "the cut", trap.Sprung())
		eventually(t, "the message is acknowledged", func() bool {
			health := k.Health()
			return health.OK() && len(health.Streams) == 1 && health.Streams[0].Held == 0
		})
		w.requireEffects(sent...)
	}
	w.requireNoAttemptCounted()
	return w, k
}
