package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/inbox"
)

// One message among a thousand ends whatever process handles it. It is set aside
// after six times, of which the first delivery's does not count, and no other
// message is.
func TestCrashLoop(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const n = 1000
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("m%04d", i)
	}
	const poison = "m0500"
	w.q.send(ids...)
	spec := childSpec{Workers: 3, Poison: poison}
	children := []*child{w.startChild(spec), w.startChild(spec), w.startChild(spec)}
	crashes := 0
	eventually(t, "all but one have taken effect", func() bool {
		for i, c := range children {
			select {
			case <-c.exited:
				require.Equal(t, exitPoisoned, c.cmd.ProcessState.ExitCode())
				crashes++
				children[i] = w.startChild(spec)
			default:
			}
		}
		return w.effects() == n-1 && w.setAside() == 1 && crashes >= 6
	})
	require.Equal(t, 6, crashes, "attempts at the message")
	require.Equal(t, poison+" crash", w.setAsideMessage())
	eventually(t, "nothing is left to suspect", func() bool {
		return w.db.Int(t, "select count(*) from %s.begun_attempts where message_id <> $1", poison) == 0
	})
	// One that has only just been started would not know what SIGTERM means.
	eventually(t, "all have started", func() bool { return w.log.count(`"consumer started"`) == len(children)+crashes })
	for _, c := range children {
		c.terminate()
		require.Zero(t, c.exitCode())
	}
	w.q.requireReady(0)
	require.Zero(t, w.db.Int(t, "select count(*) from %s.begun_attempts"))
}

// A message that is set aside can end the process as well, without a broker.
func TestCrashLoopOfAMessageSetAside(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	in, err := inbox.NewWithConfig(w.db.Pool, inbox.Config{Schema: w.db.Schema})
	require.NoError(t, err)
	_, err = in.SetAside(t.Context(), subscriber, consumer.Failure{
		Message: &consumer.Message{ID: "a"}, Reason: consumer.ReasonFailed, Error: "no", Attempts: 3,
	})
	require.NoError(t, err)
	for range 5 {
		c := w.startChild(childSpec{Poison: "a"})
		require.Equal(t, exitPoisoned, c.exitCode())
		// What a crash has taken comes back only after a while.
		w.db.MustExec(t, "update %s.failed_messages set next_attempt_at = now()")
	}
	w.startChild(childSpec{Poison: "a"})
	eventually(t, "it is set aside for good", func() bool { return w.setAsideMessage() == "a crash" })
	require.Zero(t, w.effects())
	require.Equal(t, 1, w.db.Int(t, "select count(*) from %s.failed_messages where next_attempt_at is null"))
}

// Whoever is in a handler when a worker stops in good order has not crashed,
// however often that happens.
func TestShutdownCountsNoCrash(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.q.send("a")
	for range 4 {
		begun := make(chan struct{}, 1)
		p := w.parts()
		p.DrainTimeout = 10 * time.Millisecond
		p.Handler = consumer.HandlerFunc[pgx.Tx](func(ctx context.Context, _ pgx.Tx, _ *consumer.Message) error {
			begun <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		})
		k := w.start(p)
		await(t, "a handler begins", begun)
		k.stop()
		require.Zero(t, w.db.Int(t, "select count(*) from %s.begun_attempts"))
	}
	k := w.start(w.parts())
	w.requireSettled("a")
	k.stop()
	require.Zero(t, w.setAside())
}

func (w *world) setAside() int { return w.db.Int(w.t, "select count(*) from %s.failed_messages") }

// setAsideMessage returns id and reason of the message that is set aside.
func (w *world) setAsideMessage() (text string) {
	w.t.Helper()
	require.NoError(w.t, w.db.Pool.QueryRow(w.t.Context(),
		w.db.SQL("select message_id || ' ' || reason from %s.failed_messages")).Scan(&text))
	return text
}
