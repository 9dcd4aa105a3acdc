package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Workers that handle batches are killed again and again, in handlers, commits and
// acknowledgements alike. Each message takes effect once, or is a dead letter.
func TestBatchesKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dead := newQueue(t, w.q.url)
	const messages, kills = 12_000, 10
	all := ids("m", messages)
	w.q.send(all...)
	failing := slices.DeleteFunc(slices.Clone(all), func(id string) bool { return !strings.HasSuffix(id, "77") })
	spec := childSpec{MaxBatch: 64, Workers: 4, CrashLimit: 1000, FailSuffix: "77", DeadQueue: dead.name}
	children := []*child{w.startChild(spec), w.startChild(spec)}
	for i := range kills {
		goal := (i + 1) * messages / (kills + 2)
		eventually(t, "progress", func() bool { return w.db.Processed(t) >= goal })
		children[i%2].kill()
		children[i%2] = w.startChild(spec)
	}
	settled := messages - len(failing)
	eventually(t, "every message processed", func() bool { return w.db.Processed(t) == settled })
	letters := map[string]bool{}
	eventually(t, "every other one a dead letter", func() bool {
		for {
			d, ok, err := dead.ch.Get(dead.name, true)
			if require.NoError(t, err); !ok {
				return len(letters) == len(failing)
			}
			letters[d.MessageId] = true
		}
	})
	for _, id := range failing {
		require.True(t, letters[id], id)
	}
	require.Equal(t, settled, w.effects())
	require.Equal(t, settled, w.db.Int(t, "select count(distinct message_id) from %s.effects"))
	require.Zero(t, w.db.Int(t, "select count(*) from %s.failed_messages"))
}
