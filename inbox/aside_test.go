package inbox_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/inbox"
	"github.com/ackafter/ackafter/internal/faultproxy"
	"github.com/ackafter/ackafter/internal/pgtest"
)

const forGood = -1

func failure(m *consumer.Message, retryIn time.Duration) consumer.Failure {
	return consumer.Failure{Message: m, Reason: consumer.ReasonFailed, Error: "no", Attempts: 3, RetryIn: retryIn}
}

func (b *bench) setAside(f consumer.Failure) consumer.Verdict {
	b.t.Helper()
	v, err := b.SetAside(b.ctx, subscriber, f)
	require.NoError(b.t, err)
	return v
}

// retry runs f for what is due, and records what failed.
func (b *bench) retry(f func(ctx context.Context, tx pgx.Tx) error) (*consumer.Failure, error) {
	return b.RetryDue(b.ctx, subscriber, func(ctx context.Context, tx pgx.Tx, failure consumer.Failure) error {
		return b.do(f)(ctx, tx, []*consumer.Message{failure.Message})
	}, again)
}

// again counts an attempt, and lets the next one be due at once.
func again(f *consumer.Failure, err error) consumer.Disposition {
	f.Error, f.Attempts, f.RetryIn = err.Error(), f.Attempts+1, 0
	return consumer.Stored
}

func succeed(context.Context, pgx.Tx) error { return nil }

func (b *bench) requireAside(n int) {
	b.t.Helper()
	require.Equal(b.t, n, b.Int(b.t, "select count(*) from %s.failed_messages"))
}

// What is set aside is a duplicate for the broker, and keeps every byte.
func TestSetAsideKeepsTheMessage(t *testing.T) {
	b := newBench(t, inbox.Config{})
	m := message("m1", "a\x00b\xff")
	m.Type, m.Topic, m.Position, m.Key = "paid", "pay\x00ments\xff", "payments/3@7", []byte{0, 0xff}
	m.Time = time.UnixMilli(1_700_000_000_123)
	m.Headers = consumer.Headers{{Key: "k", Value: []byte{0}}, {Key: "", Value: nil}, {Key: "k", Value: []byte{}}, {Key: "\xff\x00", Value: []byte("v")}}
	f := failure(m, 0)
	f.Error = "bad\x00\xff"
	require.Equal(t, consumer.SetAside, b.setAside(f))
	require.Equal(t, consumer.Duplicate, b.setAside(f), "set aside once")
	got, err := b.process(b.record, message("m1", "a\x00b\xff"))
	require.NoError(t, err)
	require.Equal(t, verdicts(consumer.Duplicate), got)
	b.requireAside(1)

	var seen *consumer.Message
	_, err = b.RetryDue(b.ctx, subscriber, func(_ context.Context, _ pgx.Tx, f consumer.Failure) error {
		seen = f.Message
		return nil
	}, again)
	require.NoError(t, err)
	want := *m
	want.Hash, want.Attempt, want.Topic = nil, 4, "pay\uFFFDments\uFFFD"
	require.True(t, want.Time.Equal(seen.Time))
	seen.Time = want.Time
	require.Equal(t, &want, seen)
	b.requireAside(0)
	require.Equal(t, 1, b.Processed(t), "it stays a duplicate")
}

func TestSetAsideOfAMessageThatWasProcessed(t *testing.T) {
	b := newBench(t, inbox.Config{})
	_, err := b.process(b.record, message("m1", "x"))
	require.NoError(t, err)
	require.Equal(t, consumer.Duplicate, b.setAside(failure(message("m1", "x"), 0)))
	b.requireAside(0)
}

func TestSetAsideNilAndEmpty(t *testing.T) {
	b := newBench(t, inbox.Config{})
	tombstone, empty := message("m1", ""), message("m2", "")
	tombstone.Body, empty.Body = nil, []byte{}
	b.setAside(failure(tombstone, 0))
	b.setAside(failure(empty, 0))
	for range 2 {
		_, err := b.RetryDue(b.ctx, subscriber, func(_ context.Context, _ pgx.Tx, f consumer.Failure) error {
			m := f.Message
			require.Equal(t, m.ID == "m1", m.Body == nil)
			require.Nil(t, m.Key)
			require.Empty(t, m.Headers)
			require.True(t, m.Time.IsZero())
			return nil
		}, again)
		require.NoError(t, err)
	}
	b.requireAside(0)
}

func TestSetAsideIsRetriedWhenDue(t *testing.T) {
	b := newBench(t, inbox.Config{})
	b.setAside(failure(message("later", "x"), time.Hour))
	b.setAside(failure(message("never", "x"), forGood))
	f, err := b.retry(succeed)
	require.NoError(t, err)
	require.Nil(t, f)
	_, err = b.SetAside(b.ctx, "shipping", failure(message("m1", "x"), 0))
	require.NoError(t, err)
	f, err = b.retry(succeed)
	require.NoError(t, err)
	require.Nil(t, f, "another subscriber's")

	b.setAside(failure(message("due", "x"), 0))
	f, err = b.retry(succeed)
	require.NoError(t, err)
	require.Equal(t, "due", f.Message.ID)
	b.requireChanges(1)
	b.requireAside(3)
	b.requireIdle()
}

// A handler that fails leaves no trace but the count.
func TestSetAsideFailsAgain(t *testing.T) {
	for name, f := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"error":           func(context.Context, pgx.Tx) error { return errHandler },
		"sql":             sql("select 1/0"),
		"swallowed":       func(ctx context.Context, tx pgx.Tx) error { _ = sql("select 1/0")(ctx, tx); return nil },
		"rollback":        sql("rollback"),
		"rollback; begin": sql("rollback", "begin"),
		"deferred":        sql("insert into pg_temp.child values (1)"),
		"connection lost": func(ctx context.Context, tx pgx.Tx) error {
			return sql("select pg_terminate_backend(pg_backend_pid())")(ctx, tx)
		},
		"rows left unread": func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Query(ctx, "select 1"); return err },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, inbox.Config{})
			if name == "deferred" {
				b.MustExec(t, "create table %s.parent (id int primary key)")
				b.MustExec(t, "create table %s.child (id int references %s.parent deferrable initially deferred)")
				f = sql("insert into " + b.SQL("%s.child") + " values (1)")
			}
			b.setAside(failure(message("m1", "x"), 0))
			got, err := b.retry(f)
			require.Error(t, err)
			require.Equal(t, 4, got.Attempts)
			require.Equal(t, 4, b.Int(t, "select attempts from %s.failed_messages"))
			b.requireChanges(0)
			_, err = b.retry(succeed)
			require.NoError(t, err)
			b.requireChanges(1)
			b.requireAside(0)
			b.requireIdle()
		})
	}
}

// A commit by SQL is not sent.
func TestSetAsideEndedByCommitIsCounted(t *testing.T) {
	b := newBench(t, inbox.Config{})
	b.setAside(failure(message("m1", "x"), 0))
	_, err := b.retry(sql("commit", "begin"))
	require.ErrorIs(t, err, inbox.ErrTransactionEnded)
	b.requireAside(1)
	require.Equal(t, 4, b.Int(t, "select attempts from %s.failed_messages"))
}

// One behind another statement is sent. It takes the message along with the
// effect, which therefore is not repeated.
func TestSetAsideHiddenCommitTakesEffectOnce(t *testing.T) {
	b := newBench(t, inbox.Config{})
	b.setAside(failure(message("m1", "x"), 0))
	_, err := b.retry(sql("select 1; commit; begin"))
	require.ErrorIs(t, err, inbox.ErrTransactionEnded)
	b.requireAside(0)
	f, err := b.retry(succeed)
	require.NoError(t, err)
	require.Nil(t, f)
	b.requireChanges(1)
	b.requireIdle()
}

func TestSetAsidePanicLeavesNoTrace(t *testing.T) {
	b := newBench(t, inbox.Config{})
	b.setAside(failure(message("m1", "x"), 0))
	require.Panics(t, func() {
		_, _ = b.retry(func(context.Context, pgx.Tx) error { panic("no") })
	})
	b.requireAside(1)
	b.requireChanges(0)
	b.requireIdle()
}

// failed may say that nothing is to be counted: an outage, a shutdown.
func TestSetAsideNotCounted(t *testing.T) {
	b := newBench(t, inbox.Config{})
	b.setAside(failure(message("m1", "x"), 0))
	_, err := b.RetryDue(b.ctx, subscriber, func(context.Context, pgx.Tx, consumer.Failure) error { return errHandler },
		func(*consumer.Failure, error) consumer.Disposition { return consumer.Undone })
	require.ErrorIs(t, err, errHandler)
	require.Equal(t, 3, b.Int(t, "select attempts from %s.failed_messages"))
}

// Ten workers at once run each message once, and none waits for another.
func TestSetAsideIsDivided(t *testing.T) {
	b := newBench(t, inbox.Config{})
	const messages, workers = 40, 4
	for i := range messages {
		b.setAside(failure(message(fmt.Sprint("m", i), "x"), 0))
	}
	together := make(chan struct{})
	var inside atomic.Int32
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for {
				f, err := b.retry(func(context.Context, pgx.Tx) error {
					if inside.Add(1) == workers {
						close(together)
					}
					<-together
					return nil
				})
				if !errors.Is(err, nil) {
					t.Error(err)
				}
				if f == nil {
					return
				}
			}
		})
	}
	all.Wait()
	b.requireChanges(messages)
	b.requireAside(0)
}

// Retention must not forget a message that is going to be tried again.
func TestSetAsideKeepsItsRow(t *testing.T) {
	b := newBench(t, inbox.Config{})
	b.setAside(failure(message("m1", "x"), 0))
	_, err := b.Pool.Exec(b.ctx, b.SQL("delete from %s.processed_messages"))
	require.ErrorContains(t, err, "failed_messages_processed")
}

// Kafka allows keys that no index of PostgreSQL takes.
func TestSetAsideWithALongKey(t *testing.T) {
	b := newBench(t, inbox.Config{})
	m := message("m1", "x")
	m.Key = make([]byte, 100_000)
	_, _ = rand.Read(m.Key)
	b.setAside(failure(m, 0))
	_, err := b.retry(succeed)
	require.NoError(t, err)
	b.requireAside(0)
}

// A database that goes away during an attempt, and is back for the next one, has
// not ended the process.
func TestSetAsideOutageIsNoCrash(t *testing.T) {
	b := newBench(t, inbox.Config{})
	b.setAside(failure(message("m1", "x"), 0))
	proxy, through := faultproxy.InFrontOf(t, pgtest.URL(t))
	pool := pgtest.Pool(t, through)
	defer pool.Close()
	in, err := inbox.NewWithConfig(pool, inbox.Config{Schema: b.Schema})
	require.NoError(t, err)
	for range 3 {
		_, err = in.RetryDue(b.ctx, subscriber, func(_ context.Context, _ pgx.Tx, f consumer.Failure) error {
			require.Zero(t, f.Crashes)
			proxy.Refuse()
			proxy.Cut()
			return errHandler
		}, again)
		require.ErrorIs(t, err, consumer.ErrOutage)
		proxy.Accept()
		require.Equal(t, 3, b.Int(t, "select attempts from %s.failed_messages"))
		b.MustExec(t, "update %s.failed_messages set next_attempt_at = now()") // or it waits for ClaimTimeout
	}
	// Another worker has it in its hands: nobody waits for that.
	other, err := b.Pool.Begin(b.ctx)
	require.NoError(t, err)
	defer func() { _ = other.Rollback(b.ctx) }()
	_, err = other.Exec(b.ctx, b.SQL("select from %s.failed_messages for update"))
	require.NoError(t, err)
	f, err := in.RetryDue(b.ctx, subscriber, nil, nil)
	require.NoError(t, err)
	require.Nil(t, f)
	require.NoError(t, other.Rollback(b.ctx))

	_, err = in.RetryDue(b.ctx, subscriber, func(_ context.Context, _ pgx.Tx, f consumer.Failure) error {
		require.Zero(t, f.Crashes)
		return nil
	}, again)
	require.NoError(t, err)
	b.requireAside(0)
}

// requireChanges is requireEffects where rows stand for failures, too.
func (b *bench) requireChanges(n int) {
	b.t.Helper()
	require.Equal(b.t, n, b.Int(b.t, "select count(*) from %s.effects"))
}
