package failures_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/failures"
)

func TestRetryAll(t *testing.T) {
	b := newBench(t, failures.Config{})
	b.fill(1000)
	b.MustExec(t, "update %s.failed_messages set next_attempt_at = now() + interval '1 hour' where subscriber_id = 's1'")
	for _, f := range []failures.Filter{
		{Subscriber: "s1", Reasons: []consumer.Reason{"failed"}}, {Subscriber: "s1", Reasons: []consumer.Reason{"failed", "permanent"}}, {},
	} {
		before := b.Int(t, "select count(*) from %s.failed_messages where next_attempt_at <= now()")
		dry, err := b.RetryAll(b.ctx, f, failures.RetryOptions{DryRun: true})
		require.NoError(t, err)
		require.NotZero(t, dry.Messages)
		b.requireDue(before)
		var last failures.RetryResult
		calls := 0
		done, err := b.RetryAll(b.ctx, f, failures.RetryOptions{BatchSize: 7, Progress: func(r failures.RetryResult) {
			require.Greater(t, r.Messages, last.Messages)
			require.LessOrEqual(t, r.Messages, last.Messages+7)
			last, calls = r, calls+1
		}})
		require.NoError(t, err)
		require.Equal(t, dry, done)
		require.Equal(t, last.Messages, done.Messages)
		require.EqualValues(t, (done.Messages+6)/7, calls)
		b.requireDue(before + int(done.Messages))
		again, err := b.RetryAll(b.ctx, f, failures.RetryOptions{})
		require.NoError(t, err)
		require.Zero(t, again)
	}
	b.requireDue(1000)
}

// A message that fails again at once, or is set aside during the run, does not
// keep RetryAll going for ever.
func TestRetryAllEnds(t *testing.T) {
	b := newBench(t, failures.Config{})
	b.setAside(subscriber, failure("m1", forGood), failure("m2", forGood), failure("m3", forGood))
	n := 3
	done, err := b.RetryAll(b.ctx, failures.Filter{}, failures.RetryOptions{BatchSize: 1, Progress: func(failures.RetryResult) {
		_, err := b.work(subscriber, func(*consumer.Message) error { return errHandler })
		require.ErrorIs(t, err, errHandler)
		n++
		b.setAside(subscriber, failure(fmt.Sprint("m", n), forGood))
	}})
	require.NoError(t, err)
	require.EqualValues(t, 3, done.Messages)
	require.Equal(t, 3, b.Int(t, "select count(*) from %s.failed_messages where attempts = 4"))
}

// Wherever it is interrupted, a run can be resumed by its cursor, and by a new
// run from the beginning, and makes each message due.
func TestRetryAllInterrupted(t *testing.T) {
	const messages, size = 100, 10
	for _, at := range []string{"begin", "set local", "select ", "update ", "commit"} {
		for _, resumed := range []bool{true, false} {
			t.Run(fmt.Sprintf("at %s, resumed %t", at, resumed), func(t *testing.T) {
				b := newBench(t, failures.Config{})
				b.fill(messages)
				ctx, cancel := context.WithCancel(b.ctx)
				defer cancel()
				times := 0
				b.seen.before = func(sql string) {
					if strings.HasPrefix(sql, at) {
						if times++; times == 4 {
							cancel()
						}
					}
				}
				done, err := b.RetryAll(ctx, failures.Filter{}, failures.RetryOptions{BatchSize: size})
				require.ErrorIs(t, err, context.Canceled)
				require.EqualValues(t, 3*size, done.Messages)
				require.NotEmpty(t, done.Next)
				due := b.Int(t, "select count(*) from %s.failed_messages where next_attempt_at <= now()")
				require.Contains(t, []int{3 * size, 4 * size}, due, "the outcome of a commit is unknown")

				var o failures.RetryOptions
				if resumed {
					o.After = done.Next
				}
				b.setAside(subscriber, failure("new", forGood))
				rest, err := b.RetryAll(b.ctx, failures.Filter{}, o)
				require.NoError(t, err)
				require.Empty(t, rest.Next)
				if resumed { // the new one does not belong to the run that goes on
					require.EqualValues(t, messages-due, rest.Messages)
					b.requireDue(messages)
				} else {
					require.EqualValues(t, messages+1-due, rest.Messages)
					b.requireDue(messages + 1)
				}
			})
		}
	}
}

func TestRetryAllInterruptedBetweenBatches(t *testing.T) {
	b := newBench(t, failures.Config{})
	b.fill(100)
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	done, err := b.RetryAll(ctx, failures.Filter{}, failures.RetryOptions{BatchSize: 30, Progress: func(failures.RetryResult) { cancel() }})
	require.ErrorIs(t, err, context.Canceled)
	require.EqualValues(t, 30, done.Messages)
	b.requireDue(30)
	rest, err := b.RetryAll(b.ctx, failures.Filter{}, failures.RetryOptions{BatchSize: 30, After: done.Next})
	require.NoError(t, err)
	require.EqualValues(t, 70, rest.Messages)
}

// Several operators at once divide the messages.
func TestRetryAllTogether(t *testing.T) {
	b := newBench(t, failures.Config{})
	b.fill(1000)
	var sum atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			done, err := b.RetryAll(b.ctx, failures.Filter{}, failures.RetryOptions{BatchSize: 10})
			if err != nil {
				t.Error(err)
			}
			sum.Add(done.Messages)
		})
	}
	all.Wait()
	rest, err := b.RetryAll(b.ctx, failures.Filter{}, failures.RetryOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 1000, sum.Load()+rest.Messages)
	b.requireDue(1000)
}

// barrier lets goroutines go on by the ten.
type barrier struct {
	mu   sync.Mutex
	n    int
	open chan struct{}
}

func (b *barrier) wait(ctx context.Context) error {
	b.mu.Lock()
	if b.open == nil {
		b.open = make(chan struct{})
	}
	open := b.open
	if b.n++; b.n == workers {
		close(open)
		b.n, b.open = 0, nil
	}
	b.mu.Unlock()
	select {
	case <-open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

const workers = 10

// Ten workers take what RetryAll has made due. A handler ends only when ten are
// running, so that a worker which had to wait for another would stop them all.
func TestTenWorkersRunEachMessageOnce(t *testing.T) {
	b := newBench(t, failures.Config{})
	b.MustExec(t, "create table %s.effects (id text not null)")
	const messages = 200
	for i := range messages {
		b.setAside(subscriber, failure(fmt.Sprint("m", i), forGood))
	}
	done, err := b.RetryAll(b.ctx, failures.Filter{Subscriber: subscriber}, failures.RetryOptions{})
	require.NoError(t, err)
	require.EqualValues(t, messages, done.Messages)
	var together barrier
	var runs atomic.Int32
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for {
				f, err := b.inbox.RetryDue(b.ctx, subscriber, func(ctx context.Context, tx pgx.Tx, f consumer.Failure) error {
					runs.Add(1)
					if err := together.wait(b.ctx); err != nil {
						return err
					}
					_, err := tx.Exec(ctx, b.SQL("insert into %s.effects values ($1)"), f.Message.ID)
					return err
				}, func(*consumer.Failure, error) consumer.Disposition { return consumer.Undone })
				if err != nil {
					t.Error(err)
				}
				if f == nil || err != nil {
					return
				}
			}
		})
	}
	all.Wait()
	require.EqualValues(t, messages, runs.Load())
	require.Equal(t, messages, b.Int(t, "select count(distinct id) from %s.effects"))
	require.Equal(t, messages, b.Int(t, "select count(*) from %s.effects"))
	require.Zero(t, b.Int(t, "select count(*) from %s.failed_messages"))
}

// RetryAll does not wait for what somebody has locked.
func TestRetryAllPassesOverWhatIsLocked(t *testing.T) {
	b := newBench(t, failures.Config{LockTimeout: time.Hour})
	b.setAside(subscriber, failure("m1", forGood), failure("m2", forGood), failure("m3", time.Hour))
	tx, err := b.Begin(b.ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(b.ctx) }()
	_, err = tx.Exec(b.ctx, b.SQL("select from %s.failed_messages where message_id = 'm2' for update"))
	require.NoError(t, err)
	done, err := b.RetryAll(b.ctx, failures.Filter{}, failures.RetryOptions{BatchSize: 1})
	require.NoError(t, err)
	require.EqualValues(t, 2, done.Messages)
	require.NoError(t, tx.Rollback(b.ctx))
	done, err = b.RetryAll(b.ctx, failures.Filter{}, failures.RetryOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 1, done.Messages)
}
