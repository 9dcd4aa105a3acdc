package e2e

import (
	"context"
	"fmt"
	"hash/crc32"
	"testing"

	"github.com/stretchr/testify/require"
)

// crashPoint is where a worker process is killed that fails at a message, sets
// it aside, and tries it again from there.
type crashPoint struct {
	name string
	spec childSpec
	says []string // what the process has printed then, in any order
	// trigger holds a statement in the server, by the clauses of create trigger.
	trigger string
	aside   int // how many messages are set aside then, -1 where nobody knows
	effects int // likewise
}

// A statement that is held is not yet committed. Held in a deferred trigger it is
// the commit itself: when the process is gone, the server may or may not finish it.
const (
	atInsert       = "trigger held before insert on %[1]s.failed_messages"
	atInsertCommit = "constraint trigger held after insert on %[1]s.failed_messages deferrable initially deferred"
	atDelete       = "trigger held before delete on %[1]s.failed_messages"
	atDeleteCommit = "constraint trigger held after delete on %[1]s.failed_messages deferrable initially deferred"
)

var crashPoints = []crashPoint{
	{name: "before the commit of SetAside", trigger: atInsert, aside: 0},
	{name: "at the commit of SetAside", trigger: atInsertCommit, aside: -1},
	{name: "after the commit of SetAside", spec: childSpec{HoldAside: true, HoldHandler: true}, says: []string{"aside a", "begun a"}, aside: 1},
	{name: "before the acknowledgement", spec: childSpec{HoldAck: true, HoldHandler: true}, says: []string{"acking a", "begun a"}, aside: 1},
	{name: "in the handler of a retry", spec: childSpec{HoldHandler: true}, says: []string{"begun a"}, aside: 1},
	{name: "before the commit of a retry", trigger: atDelete, aside: -1, effects: -1},
	{name: "at the commit of a retry", trigger: atDeleteCommit, aside: -1, effects: -1},
	{name: "after the commit of a retry", spec: childSpec{HoldRetried: true}, says: []string{"retried a"}, aside: 0, effects: 1},
}

func TestSetAsideKilled(t *testing.T) {
	t.Parallel()
	for _, point := range crashPoints {
		t.Run(point.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.q.send("a")
			release := func() {}
			if point.trigger != "" {
				release = w.holdInServer(point.trigger)
			}
			spec := point.spec
			spec.FailFirst = true
			c := w.startChild(spec)
			if point.trigger == "" {
				c.expect(point.says...)
			} else {
				eventually(t, "held in the server", w.isHeld)
			}
			c.kill()
			w.requireOneOrTheOther(point)
			release()
			eventually(t, "the server has noticed", func() bool { return w.sessionsOfChild() == 0 })
			w.requireOneOrTheOther(point)
			w.q.awaitNoConsumer()

			w.workUntilOver()
			w.q.requireReady(0)
			w.requireEffects("a")
			require.Zero(t, w.setAside())
		})
	}
}

// workUntilOver lets a worker finish what the killed one has left. A delivery that
// is still on its way to it when it stops is handed back, and is for the next.
func (w *world) workUntilOver() {
	w.t.Helper()
	for range 10 {
		k := w.start(w.asideParts())
		eventually(w.t, "it has taken effect, and nothing is left", func() bool {
			// What was begun would be due again only after ClaimTimeout.
			w.db.MustExec(w.t, "update %s.failed_messages set next_attempt_at = now() where next_attempt_at > now()")
			w.requireNeverBoth()
			return w.effects() == 1 && w.setAside() == 0 && k.held() == 0 && w.q.ready() == 0
		})
		k.stop()
		if w.q.ready() == 0 {
			return
		}
	}
}

// holdInServer makes a trigger that waits until release is called.
func (w *world) holdInServer(trigger string) (release func()) {
	w.t.Helper()
	w.db.MustExec(w.t, fmt.Sprintf(`create function %[1]s.hold() returns trigger language plpgsql as $$
		begin perform pg_advisory_xact_lock_shared(%[2]d); return coalesce(new, old); end $$`, w.db.Schema, w.lockKey()))
	w.db.MustExec(w.t, fmt.Sprintf("create "+trigger+" for each row execute function %[1]s.hold()", w.db.Schema))
	tx, err := w.db.Pool.Begin(w.t.Context())
	require.NoError(w.t, err)
	_, err = tx.Exec(w.t.Context(), "select pg_advisory_xact_lock($1)", w.lockKey())
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = tx.Rollback(context.Background()) }) // or a failed test would not end
	return func() { require.NoError(w.t, tx.Rollback(w.t.Context())) }
}

func (w *world) lockKey() int64 { return int64(crc32.ChecksumIEEE([]byte(w.db.Schema)) >> 1) }

func (w *world) isHeld() bool {
	return w.db.Int(w.t, "select count(*) from pg_locks where locktype = 'advisory' and not granted and objid::bigint = $1", w.lockKey()) == 1
}

// sessionsOfChild counts what the killed process has left in the server.
func (w *world) sessionsOfChild() int {
	return w.db.Int(w.t, "select count(*) from pg_stat_activity where application_name = $1", w.childName())
}

// requireOneOrTheOther requires what is certain of the message at a crash.
func (w *world) requireOneOrTheOther(point crashPoint) {
	w.t.Helper()
	w.requireNeverBoth()
	if point.aside >= 0 {
		require.Equal(w.t, point.aside, w.setAside(), "messages set aside")
	}
	if point.effects >= 0 {
		require.Equal(w.t, point.effects, w.effects(), "effects")
	}
}

// requireNeverBoth requires that what has taken effect is not set aside, and that
// no effect is there twice.
func (w *world) requireNeverBoth() {
	w.t.Helper()
	require.Zero(w.t, w.db.Int(w.t, `select count(*) from %s.effects join %s.failed_messages using (message_id)`),
		"messages that have taken effect and are still set aside")
	require.LessOrEqual(w.t, w.effects(), 1, "effects")
}
