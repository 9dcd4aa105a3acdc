package failures_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/failures"
)

func succeed(*consumer.Message) error { return nil }

var errHandler = errors.New("the handler says no")

func TestRetry(t *testing.T) {
	b := newBench(t, failures.Config{})
	b.setAside(subscriber, failure("never", forGood), failure("later", time.Hour), failure("other", time.Hour), failure("due", 0))
	due, err := b.Get(b.ctx, subscriber, "due")
	require.NoError(t, err)
	for _, id := range []string{"never", "later", "due"} {
		require.NoError(t, b.Retry(b.ctx, subscriber, id))
	}
	again, err := b.Get(b.ctx, subscriber, "due")
	require.NoError(t, err)
	require.Equal(t, due, again)
	for _, id := range []string{"due", "never", "later"} {
		f, err := b.work(subscriber, succeed)
		require.NoError(t, err)
		require.Equal(t, id, f.Message.ID)
		require.Equal(t, 4, f.Message.Attempt)
	}
	f, err := b.work(subscriber, succeed)
	require.NoError(t, err)
	require.Nil(t, f)
}

func TestLetGo(t *testing.T) {
	b := newBench(t, failures.Config{})
	f := failure("m1", 0)
	f.Message.Key, f.Message.Headers = []byte{0xff}, consumer.Headers{{Key: "k", Value: []byte("v")}}
	b.setAside(subscriber, f, failure("m2", time.Hour))
	require.NoError(t, b.LetGo(b.ctx, subscriber, "m1", "the order was cancelled"))
	require.ErrorIs(t, b.LetGo(b.ctx, subscriber, "m1", "again"), failures.ErrNotFound)
	_, err := b.Get(b.ctx, subscriber, "m1")
	require.ErrorIs(t, err, failures.ErrNotFound)
	counts, err := b.Count(b.ctx, failures.Filter{})
	require.NoError(t, err)
	require.EqualValues(t, 1, counts[0].Messages)

	got, err := b.work(subscriber, succeed)
	require.NoError(t, err)
	require.Nil(t, got, "no worker gets it")
	v, err := b.inbox.SetAside(b.ctx, subscriber, f)
	require.NoError(t, err)
	require.Equal(t, consumer.Duplicate, v, "a redelivery is a duplicate")
	require.Equal(t, 1, b.Int(t, `select count(*) from %s.let_go_messages
where subscriber_id = 'billing' and message_id = 'm1' and let_go_reason = 'the order was cancelled' and reason = 'failed' and error = 'no'
	and attempts = 3 and message_key = '\xff' and body = 'body of m1' and header_keys = '{k}' and header_values = '{v}'
	and failed_at = last_failed_at and let_go_at >= failed_at and message_time is null`))

	// The row in processed_messages may expire. The message can then come back.
	b.MustExec(t, "delete from %s.processed_messages where message_id = 'm1'")
	b.setAside(subscriber, f)
	require.NoError(t, b.LetGo(b.ctx, subscriber, "m1", "once more"))
	require.Equal(t, 2, b.Int(t, "select count(*) from %s.let_go_messages"))
}

// change is Retry or LetGo.
type change = func(ctx context.Context, b *bench) error

var changes = map[string]change{
	"Retry": func(ctx context.Context, b *bench) error { return b.Retry(ctx, subscriber, "m1") },
	"LetGo": func(ctx context.Context, b *bench) error { return b.LetGo(ctx, subscriber, "m1", "obsolete") },
}

// A handler that runs for longer than the lock timeout is not disturbed.
func TestChangeOfAMessageThatIsBeingHandled(t *testing.T) {
	for name, change := range changes {
		for outcome, handlerErr := range map[string]error{"succeeds": nil, "fails": errHandler} {
			t.Run(name+" and it "+outcome, func(t *testing.T) {
				b := newBench(t, failures.Config{LockTimeout: 20 * time.Millisecond})
				b.setAside(subscriber, failure("m1", 0), failure("m2", forGood))
				_, err := b.work(subscriber, func(*consumer.Message) error {
					err := change(b.ctx, b)
					require.ErrorIs(t, err, failures.ErrBusy)
					require.ErrorContains(t, err, "waited 20ms for it (Config.LockTimeout)")
					b.lookOn(2)
					return handlerErr
				})
				require.ErrorIs(t, err, handlerErr)
				require.Zero(t, b.Int(t, "select count(*) from %s.let_go_messages"))
				if handlerErr == nil {
					require.ErrorIs(t, change(b.ctx, b), failures.ErrNotFound)
					require.Equal(t, 1, b.Int(t, "select count(*) from %s.failed_messages"))
					return
				}
				m, err := b.Get(b.ctx, subscriber, "m1")
				require.NoError(t, err)
				require.Equal(t, 4, m.Attempts)
				require.NoError(t, change(b.ctx, b))
				require.Equal(t, 1, b.Int(t, `select
	(select count(*) from %s.failed_messages where message_id = 'm1' and attempts = 4 and next_attempt_at <= now()) +
	(select count(*) from %s.let_go_messages where message_id = 'm1' and attempts = 4)`))
			})
		}
	}
}

// lookOn does what must not wait for a handler: n messages are set aside.
func (b *bench) lookOn(n int) {
	b.t.Helper()
	list, err := b.List(b.ctx, failures.Filter{}, failures.Page{})
	require.NoError(b.t, err)
	require.Len(b.t, list.Messages, n)
	counts, err := b.Count(b.ctx, failures.Filter{})
	require.NoError(b.t, err)
	require.EqualValues(b.t, n, counts[0].Messages)
	_, err = b.Get(b.ctx, subscriber, "m1")
	require.NoError(b.t, err)
	done, err := b.RetryAll(b.ctx, failures.Filter{}, failures.RetryOptions{})
	require.NoError(b.t, err)
	require.EqualValues(b.t, n-1, done.Messages, "the one that is being handled was due")
}

// A call that waits for a handler acts on what the handler made of the message.
func TestChangeAfterTheHandlerItWaitedFor(t *testing.T) {
	for name, change := range changes {
		for outcome, handlerErr := range map[string]error{"succeeds": nil, "fails": errHandler} {
			t.Run(name+" and it "+outcome, func(t *testing.T) {
				b := newBench(t, failures.Config{LockTimeout: time.Minute})
				b.setAside(subscriber, failure("m1", 0))
				changed := make(chan error, 1)
				_, err := b.work(subscriber, func(*consumer.Message) error {
					go func() { changed <- change(b.ctx, b) }()
					b.awaitWaiter()
					return handlerErr
				})
				require.ErrorIs(t, err, handlerErr)
				if handlerErr == nil {
					require.ErrorIs(t, <-changed, failures.ErrNotFound)
					require.Zero(t, b.Int(t, "select (select count(*) from %s.failed_messages) + (select count(*) from %s.let_go_messages)"))
					return
				}
				require.NoError(t, <-changed)
				require.Equal(t, 1, b.Int(t, `select
	(select count(*) from %s.failed_messages where attempts = 4 and next_attempt_at <= now()) +
	(select count(*) from %s.let_go_messages where attempts = 4)`))
			})
		}
	}
}

// awaitWaiter waits until somebody waits for a lock in this test's schema.
func (b *bench) awaitWaiter() {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		return b.Int(b.t, `select count(*) from pg_stat_activity
where wait_event_type = 'Lock' and backend_type = 'client backend' and position('%s' in query) > 0 and pid <> pg_backend_pid()`) > 0
	}, 30*time.Second, time.Millisecond)
}

// While an operator waits for one handler, workers go on.
func TestAWaitingOperatorBlocksNoWorker(t *testing.T) {
	b := newBench(t, failures.Config{LockTimeout: time.Minute})
	b.setAside(subscriber, failure("m1", 0), failure("m2", 0))
	changed := make(chan error, 1)
	_, err := b.work(subscriber, func(*consumer.Message) error {
		go func() { changed <- b.LetGo(b.ctx, subscriber, "m1", "obsolete") }()
		b.awaitWaiter()
		f, err := b.work(subscriber, succeed)
		require.NoError(t, err)
		require.Equal(t, "m2", f.Message.ID)
		f, err = b.work(subscriber, succeed)
		require.NoError(t, err)
		require.Nil(t, f)
		return errHandler
	})
	require.ErrorIs(t, err, errHandler)
	require.NoError(t, <-changed)
}

func TestACancelledCallChangesNothing(t *testing.T) {
	b := newBench(t, failures.Config{LockTimeout: time.Minute})
	b.setAside(subscriber, failure("m1", 0))
	_, err := b.work(subscriber, func(*consumer.Message) error {
		ctx, cancel := context.WithCancel(b.ctx)
		changed := make(chan error, 1)
		go func() { changed <- b.LetGo(ctx, subscriber, "m1", "obsolete") }()
		b.awaitWaiter()
		cancel()
		require.ErrorIs(t, <-changed, context.Canceled)
		return errHandler
	})
	require.ErrorIs(t, err, errHandler)
	require.Equal(t, 1, b.Int(t, "select count(*) from %s.failed_messages where attempts = 4"))
}

// A table that is locked, as by a migration, is an error that says so.
func TestALockedTable(t *testing.T) {
	b := newBench(t, failures.Config{LockTimeout: 20 * time.Millisecond})
	tx, err := b.Begin(b.ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(b.ctx) }()
	_, err = tx.Exec(b.ctx, b.SQL("lock table %s.failed_messages"))
	require.NoError(t, err)
	_, err = b.Count(b.ctx, failures.Filter{})
	require.ErrorIs(t, err, failures.ErrBusy)
	_, err = b.RetryAll(b.ctx, failures.Filter{}, failures.RetryOptions{})
	require.ErrorIs(t, err, failures.ErrBusy)
}
