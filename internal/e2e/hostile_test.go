package e2e

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"
)

func TestHostileKills(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dead := newQueue(t, w.q.url)
	all := ids("m", 40000)
	w.q.send(all...)
	spec := childSpec{MaxBatch: 64, Workers: 4, CrashLimit: 1000, FailSuffix: "77", DeadQueue: dead.name}
	children := []*child{w.startChild(spec), w.startChild(spec)}
	kills := 0
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end) && kills < 40; kills++ {
		time.Sleep(time.Duration(200+rand.N(300)) * time.Millisecond)
		t.Log(w.db.Processed(t), w.db.Int(t, "select count(*) from %s.begun_attempts"))
		i := rand.N(2)
		children[i].kill()
		children[i] = w.startChild(spec)
	}
	t.Log("processed when the kills end", w.db.Processed(t), "effects", w.effects(), "kills", kills)
	failing := 0
	for _, id := range all {
		if len(id) > 2 && id[len(id)-2:] == "77" {
			failing++
		}
	}
	require.Eventually(t, func() bool { return w.db.Processed(t) >= len(all)-failing }, 90*time.Second, 100*time.Millisecond)
	time.Sleep(3 * time.Second)
	for _, c := range children {
		c.kill()
	}
	require.Equal(t, len(all)-failing, w.db.Int(t, "select count(distinct message_id) from %s.effects"), "lost")
	require.Equal(t, len(all)-failing, w.effects(), "doubled")
	require.Zero(t, w.db.Int(t, "select count(*) from %s.failed_messages"))
	conn, err := amqp.Dial(w.q.url)
	require.NoError(t, err)
	defer conn.Close()
	ch, err := conn.Channel()
	require.NoError(t, err)
	got := map[string]int{}
	for {
		d, ok, err := ch.Get(dead.name, true)
		require.NoError(t, err)
		if !ok {
			break
		}
		got[d.MessageId]++
	}
	t.Log("dead letters", len(got), "of", failing, "notes", w.db.Int(t, "select count(*) from %s.begun_attempts"))
	require.Len(t, got, failing)
	_ = context.Background
	w.q.requireReady(0)
}
