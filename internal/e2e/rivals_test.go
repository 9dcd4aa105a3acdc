package e2e

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
)

// rivals are two workers that have the same message at the same time.
type rivals struct {
	*world
	other  *queue // of the second worker; may be that of the first
	begun  chan struct{}
	finish chan error // what the first handler returns
	calls  atomic.Int32
}

func newRivals(t *testing.T, twoQueues bool) *rivals {
	r := &rivals{world: newWorld(t), begun: make(chan struct{}), finish: make(chan error, 1)}
	r.other = r.q
	if twoQueues {
		r.other = newQueue(t, r.q.url)
	}
	return r
}

// handle has its effect; the first call then waits to be told how to end.
func (r *rivals) handle(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
	first := r.calls.Add(1) == 1
	if err := r.effect()(ctx, tx, m); err != nil || !first {
		return err
	}
	close(r.begun)
	select {
	case err := <-r.finish:
		return err
	case <-r.t.Context().Done():
		return context.Canceled
	}
}

func (r *rivals) startOn(q *queue) *worker {
	p := r.parts()
	p.Handler = consumer.HandlerFunc[pgx.Tx](r.handle)
	p.Rabbit.Queue, p.Rabbit.Prefetch = q.name, 1
	return r.start(p)
}

// waiting tells whether a claim waits for another transaction to end.
func (r *rivals) waiting() bool {
	return r.db.Int(r.t, `select count(*) from pg_stat_activity a join pg_locks l using (pid)
		where a.wait_event_type = 'Lock' and not l.granted and l.locktype = 'transactionid'
		and a.query like 'insert into %' || $1 || '%processed_messages%'`, r.db.Schema) == 1
}

// compete lets the first handler return result once the second worker waits
// for it.
func (r *rivals) compete(result error) {
	r.t.Helper()
	r.q.send("a")
	first := r.startOn(r.q)
	await(r.t, "the first handler begins", r.begun)
	r.other.send("a")
	second := r.startOn(r.other)
	eventually(r.t, "the second waits for the first", r.waiting)
	require.EqualValues(r.t, 1, r.calls.Load(), "the second handler must not run yet")
	r.finish <- result
	eventually(r.t, "both have settled it", func() bool {
		return r.log.count("ackafter.verdict=processed") == 1 && r.log.count(lineDuplicate) == 1
	})
	first.stop()
	second.stop()
	r.requireEffects("a")
	r.q.requireReady(0)
	r.other.requireReady(0)
}

func TestRivalsOfWhomTheFirstCommitsLate(t *testing.T) {
	t.Parallel()
	forBothLayouts(t, func(t *testing.T, r *rivals) {
		r.compete(nil)
		require.EqualValues(t, 1, r.calls.Load(), "the second handler must never run")
		require.Zero(t, r.log.count(lineFailed))
	})
}

func TestRivalsOfWhomTheFirstRollsBackLate(t *testing.T) {
	t.Parallel()
	forBothLayouts(t, func(t *testing.T, r *rivals) {
		r.compete(errors.New("no"))
		require.EqualValues(t, 2, r.calls.Load(), "the second handler takes over")
		require.Equal(t, 1, r.log.count(lineFailed))
	})
}

func forBothLayouts(t *testing.T, test func(*testing.T, *rivals)) {
	t.Run("two queues", func(t *testing.T) {
		t.Parallel()
		test(t, newRivals(t, true))
	})
	t.Run("published twice", func(t *testing.T) {
		t.Parallel()
		test(t, newRivals(t, false))
	})
}

func TestOneIDForTwoSubscribersTakesEffectForEach(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	names := []string{"billing", "shipping"}
	for _, name := range names {
		q := newQueue(t, w.q.url)
		q.send("a", "a")
		p := w.parts()
		p.Subscriber, p.Handler, p.Rabbit.Queue = name, w.effectOf(name), q.name
		w.start(p)
	}
	eventually(t, "all four copies settled", func() bool { return w.log.count("ackafter.verdict=") == 4 })
	require.Equal(t, 2, w.log.count(lineDuplicate))
	for _, name := range names {
		require.Equal(t, 1, w.db.Int(t, "select count(*) from %s.effects where subscriber = $1", name), name)
		require.Equal(t, 1, w.db.Int(t, "select count(*) from %s.processed_messages where subscriber_id = $1", name), name)
	}
}
