package inbox_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/brokers/memory"
	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/inbox"
)

func discard(*consumer.Failure, error) consumer.Disposition { return consumer.Discarded }

// What is discarded is gone from both tables at once, and new again, however the
// attempt has ended its transaction.
func TestDiscard(t *testing.T) {
	for name, f := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"error":           func(context.Context, pgx.Tx) error { return errHandler },
		"sql":             sql("select 1/0"),
		"rollback":        sql("rollback"),
		"connection lost": sql("select pg_terminate_backend(pg_backend_pid())"),
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, inbox.Config{})
			b.setAside(failure(message("m1", "x"), 0))
			b.setAside(failure(message("m2", "x"), time.Hour))
			got, err := b.RetryDue(b.ctx, subscriber, func(ctx context.Context, tx pgx.Tx, failure consumer.Failure) error {
				return b.do(f)(ctx, tx, []*consumer.Message{failure.Message})
			}, discard)
			require.Error(t, err)
			require.Equal(t, "m1", got.Message.ID)
			b.requireAside(1)
			require.Equal(t, 1, b.Processed(t), "of m2")
			b.requireChanges(0)
			verdict, err := b.process(b.record, message("m1", "x"))
			require.NoError(t, err)
			require.Equal(t, verdicts(consumer.Processed), verdict)
			b.requireIdle()
		})
	}
}

// A worker's role needs one more right for that, and the start tells.
func TestCheckRightToDiscard(t *testing.T) {
	b := newBench(t, inbox.Config{})
	worker := "worker_" + strings.ToLower(rand.Text()[:8])
	b.MustExec(t, "create role "+worker+" login")
	t.Cleanup(func() { b.MustExec(t, "drop owned by "+worker+"; drop role "+worker) })
	b.MustExec(t, "grant usage on schema %s to "+worker)
	b.MustExec(t, "grant select on %s.schema_version to "+worker)
	b.MustExec(t, "grant select, insert on %s.processed_messages to "+worker)
	b.MustExec(t, "grant select, insert, update, delete on %s.failed_messages, %s.begun_attempts to "+worker)
	in := b.withSettings(inbox.Config{}, "user", worker)
	plan := consumer.Plan{Subscriber: subscriber, Workers: 1, Warn: func(string) {}}
	require.NoError(t, in.Check(b.ctx, plan))
	plan.Discards = true
	require.ErrorContains(t, in.Check(b.ctx, plan), "grant delete on")
	b.MustExec(t, "grant delete on %s.processed_messages to "+worker)
	require.NoError(t, in.Check(b.ctx, plan))
}

// A message that the server will never take is no outage, in each way in which it
// may say so.
func TestSetAsideRefused(t *testing.T) {
	for name, statements := range map[string][]string{
		"check":    {"alter table %s.failed_messages add constraint small check (octet_length(body) < 5)"},
		"trigger":  {"create function %s.no() returns trigger language plpgsql as $$ begin raise exception 'nothing here'; end $$", "create trigger no before insert or update on %s.failed_messages for each row execute function %s.no()"},
		"deferred": {"create function %s.no() returns trigger language plpgsql as $$ begin raise check_violation; end $$", "create constraint trigger no after insert on %s.failed_messages deferrable initially deferred for each row execute function %s.no()"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, inbox.Config{})
			for _, s := range statements {
				b.MustExec(t, s)
			}
			_, err := b.SetAside(b.ctx, subscriber, failure(message("m1", "too large"), 0))
			require.ErrorIs(t, err, consumer.ErrRefused)
			require.NotErrorIs(t, err, consumer.ErrOutage)
			b.requireAside(0)
			require.Zero(t, b.Processed(t))
			b.requireIdle()
		})
	}
}

func TestSetAsideBeyondWhatPostgreSQLTakes(t *testing.T) {
	b := newBench(t, inbox.Config{})
	m := message("m1", "x")
	m.Body = make([]byte, 501<<20) // which nobody touches
	_, err := b.SetAside(b.ctx, subscriber, failure(m, 0))
	require.ErrorIs(t, err, consumer.ErrRefused)
	require.ErrorContains(t, err, "PostgreSQL takes 524288000")
}

// A retry that cannot be stored is no outage either, and no crash.
func TestRetryRefused(t *testing.T) {
	b := newBench(t, inbox.Config{})
	b.setAside(failure(message("m1", "x"), 0))
	b.MustExec(t, "alter table %s.failed_messages add constraint few check (attempts < 4)")
	for range 3 {
		_, err := b.RetryDue(b.ctx, subscriber, func(_ context.Context, _ pgx.Tx, f consumer.Failure) error {
			require.Zero(t, f.Crashes)
			return errHandler
		}, again)
		require.ErrorIs(t, err, consumer.ErrRefused)
		require.NotErrorIs(t, err, consumer.ErrOutage)
		b.requireIdle()
		b.MustExec(t, "update %s.failed_messages set next_attempt_at = now()")
	}
}

// The id may belong to another message, which only setting aside finds out.
func TestSetAsideMismatch(t *testing.T) {
	b := newBench(t, inbox.Config{})
	_, err := b.process(b.record, message("m1", "x"))
	require.NoError(t, err)
	require.Equal(t, consumer.Mismatch, b.setAside(failure(message("m1", "other"), 0)))
	require.Equal(t, consumer.Duplicate, b.setAside(failure(message("m1", "x"), 0)))
	b.requireAside(0)
}

// While one message is refused the others go on, and it is set aside once the
// constraint is gone.
func TestRunnerGoesOnBesideARefusedMessage(t *testing.T) {
	b := newRunnerBench(t)
	b.MustExec(t, "alter table %s.failed_messages add constraint small check (octet_length(body) < 5)")
	b.handle = func(_ context.Context, _ pgx.Tx, m *consumer.Message) error {
		if strings.HasPrefix(m.ID, "bad") {
			return consumer.Permanent(errHandler)
		}
		return nil
	}
	runner, err := consumer.New(b.cfg)
	require.NoError(t, err)
	b.run(runner)
	b.broker.Publish(message("bad", "too large"), message("bad2", "x"))
	for i := range 20 {
		b.broker.Publish(message(fmt.Sprint("m", i), "x"))
	}
	require.Eventually(t, func() bool { return len(runner.Health().Unstored) == 1 }, 30*time.Second, 10*time.Millisecond)
	require.Contains(t, runner.Health().Unstored[0].Error, `violates check constraint "small"`)
	require.Eventually(t, func() bool { return b.Int(t, "select count(*) from %s.effects") == 20 }, 30*time.Second, 10*time.Millisecond)
	require.True(t, runner.Health().OK())
	b.MustExec(t, "alter table %s.failed_messages drop constraint small")
	b.publish()
	b.requireAside(2)
	require.Empty(t, runner.Health().Unstored)
}

// From the last failed attempt to the dead letters and back: in effect once,
// though the database goes away under the commit that discards it, so that there
// are two copies.
func TestDeadLetterAndBack(t *testing.T) {
	b := newRunnerBench(t)
	dead := memory.New()
	b.cfg.DeadLetter, b.cfg.Attempts = dead.DeadLetter(), 1
	b.cfg.Probe = consumer.Backoff{Min: time.Millisecond, Max: 10 * time.Millisecond}
	var mended atomic.Bool
	b.handle = func(context.Context, pgx.Tx, *consumer.Message) error {
		if mended.Load() {
			return nil
		}
		return errHandler
	}
	b.MustExec(t, "create function %s.away() returns trigger language plpgsql as $$ begin perform pg_terminate_backend(pg_backend_pid()); return old; end $$")
	b.MustExec(t, "create trigger away before delete on %s.processed_messages for each row execute function %s.away()")
	stop := b.start()
	b.publish(message("m1", "x"))
	var copies []*consumer.Message
	require.Eventually(t, func() bool { copies = append(copies, read(t, dead)...); return len(copies) >= 2 }, 30*time.Second, time.Millisecond)
	require.Equal(t, 1, b.Int(t, "select count(*) from %s.failed_messages"))
	require.Equal(t, 1, b.Processed(t))
	b.MustExec(t, "drop trigger away on %s.processed_messages")
	require.Eventually(t, func() bool { return b.Int(t, "select count(*) from %s.failed_messages") == 0 }, 30*time.Second, 10*time.Millisecond)
	require.Zero(t, b.Processed(t), "no row keeps it from running again")
	b.requireChanges(0)
	mended.Store(true)
	b.publish(copies...)
	stop()
	b.requireEffects(1)
}

// read takes what is in a broker now.
func read(t *testing.T, broker *memory.Broker) (ms []*consumer.Message) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	err := broker.Run(ctx, func(ctx context.Context, s consumer.Stream) error {
		for {
			got, err := s.Next(ctx, 100)
			if err != nil {
				return nil
			}
			ms = append(ms, got...)
			if err := s.Ack(context.WithoutCancel(ctx), got...); err != nil {
				return err
			}
		}
	})
	if !errors.Is(err, nil) {
		t.Error(err)
	}
	return ms
}

// What has ended its process too often becomes a dead letter, unattempted, from
// the broker as from the table; and neither is noted any more.
func TestDeadLetterOfACrash(t *testing.T) {
	b := newRunnerBench(t)
	dead := memory.New()
	b.cfg.DeadLetter, b.cfg.CrashLimit = dead.DeadLetter(), 3
	b.setAside(failure(message("table", "x"), 0))
	b.MustExec(t, "update %s.failed_messages set unfinished = 3")
	for i := range 3 {
		_, err := b.BeginAttempts(b.ctx, subscriber, []string{"broker"}, fmt.Sprint("r", i), true)
		require.NoError(t, err)
	}
	b.broker.Publish(message("broker", "x"))
	ctx, cancel := context.WithCancel(b.ctx)
	require.NoError(t, b.broker.Run(ctx, func(ctx context.Context, s consumer.Stream) error {
		_, err := s.Next(ctx, 1) // and now it was delivered before
		cancel()
		return err
	}))
	stop := b.start()
	b.publish()
	reasons := map[string]string{}
	require.Eventually(t, func() bool {
		for _, m := range read(t, dead) {
			reasons[m.ID] = m.Headers.Get(consumer.HeaderReason)
		}
		return len(reasons) == 2
	}, 30*time.Second, time.Millisecond)
	stop()
	require.Equal(t, map[string]string{"broker": "crash", "table": "crash"}, reasons)
	b.requireChanges(0)
	b.requireAside(0)
	require.Zero(t, b.Processed(t))
	require.Zero(t, b.Int(t, "select count(*) from %s.begun_attempts"))
}
