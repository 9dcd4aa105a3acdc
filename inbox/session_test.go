package inbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/inbox"
)

func (b *bench) session() consumer.Session[pgx.Tx] {
	s := b.Session(subscriber)
	b.t.Cleanup(func() { s.Close(b.ctx) })
	return s
}

func then(ms ...*consumer.Message) func() []*consumer.Message {
	return func() []*consumer.Message { return ms }
}

// inTransaction counts this test's sessions that are in a transaction.
func (b *bench) inTransaction() int {
	return b.Int(b.t, `select count(*) from pg_stat_activity
		where state like 'idle in transaction%' and query like '%' || $1 || '%'`, b.Schema)
}

func TestChain(t *testing.T) {
	b := newBench(t, inbox.Config{})
	s := b.session()
	var ms []*consumer.Message
	for _, id := range []string{"a", "b", "a", "c", "b", "b", "d"} {
		ms = append(ms, message(id, "x"))
	}
	want := verdicts(consumer.Processed, consumer.Processed, consumer.Duplicate, consumer.Processed,
		consumer.Duplicate, consumer.Duplicate, consumer.Processed)
	for i, m := range ms {
		var next func() []*consumer.Message
		if i+1 < len(ms) {
			next = then(ms[i+1])
		}
		got, err := s.Process(b.ctx, []*consumer.Message{m}, b.record, next)
		require.NoError(t, err)
		require.Equal(t, want[i:i+1], got, "message %d", i)
		if next != nil {
			require.Equal(t, 1, b.inTransaction(), "the next message was not claimed ahead")
		}
	}
	require.Zero(t, b.inTransaction())
	s.Close(b.ctx)
	b.requireEffects(4)
	b.requireIdle()
}

func TestClaimAheadThatIsNotUsedLeavesNoTrace(t *testing.T) {
	b := newBench(t, inbox.Config{})
	s := b.session()
	_, err := s.Process(b.ctx, []*consumer.Message{message("a", "x")}, b.record, then(message("b", "x")))
	require.NoError(t, err)
	s.Close(b.ctx)
	b.requireEffects(1)
	b.requireIdle()

	_, err = s.Process(b.ctx, []*consumer.Message{message("c", "x")}, b.record, then(message("b", "x")))
	require.NoError(t, err)
	_, err = s.Process(b.ctx, []*consumer.Message{message("d", "x")}, b.record, nil) // not b
	require.NoError(t, err)
	s.Close(b.ctx)
	b.requireEffects(3)
}

func TestNothingIsClaimedBehindACommitThatWasRefused(t *testing.T) {
	b := newBench(t, inbox.Config{})
	b.MustExec(t, "alter table %s.effects add unique (id) deferrable initially deferred")
	twice := b.do(sql(b.SQL("insert into %s.effects values ('a')")))
	s := b.session()
	next := message("b", "x")
	_, err := s.Process(b.ctx, []*consumer.Message{message("a", "x")}, twice, then(next))
	require.ErrorContains(t, err, "duplicate key value")
	require.Zero(t, b.inTransaction())

	got, err := s.Process(b.ctx, []*consumer.Message{next}, b.record, nil)
	require.NoError(t, err)
	require.Equal(t, verdicts(consumer.Processed), got)
	b.requireEffects(1)
}

func TestFailureDropsWhatWasClaimedAhead(t *testing.T) {
	b := newBench(t, inbox.Config{})
	s := b.session()
	second, third := message("b", "x"), message("c", "x")
	_, err := s.Process(b.ctx, []*consumer.Message{message("a", "x")}, b.record, then(second))
	require.NoError(t, err)
	_, err = s.Process(b.ctx, []*consumer.Message{second},
		b.do(func(context.Context, pgx.Tx) error { return errHandler }), then(third))
	require.ErrorIs(t, err, errHandler)
	b.requireEffects(1)
	for _, m := range []*consumer.Message{third, second} {
		got, err := s.Process(b.ctx, []*consumer.Message{m}, b.record, nil)
		require.NoError(t, err)
		require.Equal(t, verdicts(consumer.Processed), got)
	}
	b.requireEffects(3)
}

// A rival that holds the next message must not spoil the commit of this one.
func TestContentionAheadIsReportedByTheNextProcess(t *testing.T) {
	b := newBench(t, inbox.Config{LockTimeout: 50 * time.Millisecond})
	release := make(chan struct{})
	rival := b.held(release, nil, message("b", "x"))
	s := b.session()
	next := message("b", "x")
	got, err := s.Process(b.ctx, []*consumer.Message{message("a", "x")}, b.record, then(next))
	require.NoError(t, err)
	require.Equal(t, verdicts(consumer.Processed), got)
	_, err = s.Process(b.ctx, []*consumer.Message{next}, b.record, nil)
	require.ErrorIs(t, err, consumer.ErrContention)

	close(release)
	require.NoError(t, (<-rival).err)
	got, err = s.Process(b.ctx, []*consumer.Message{next}, b.record, nil)
	require.NoError(t, err)
	require.Equal(t, verdicts(consumer.Duplicate), got)
	b.requireEffects(2)
}

func TestSessionSurvivesALostConnection(t *testing.T) {
	b := newBench(t, inbox.Config{})
	s := b.session()
	next := message("b", "x")
	_, err := s.Process(b.ctx, []*consumer.Message{message("a", "x")}, b.record, then(next))
	require.NoError(t, err)
	b.MustExec(t, `select pg_terminate_backend(pid, 5000) from pg_stat_activity
		where state = 'idle in transaction' and query like '%' || $1 || '%'`, b.Schema)
	if _, err = s.Process(b.ctx, []*consumer.Message{next}, b.record, nil); err != nil { // nil when the claim has become too old
		require.ErrorIs(t, err, consumer.ErrOutage)
		b.requireEffects(1)
	}
	_, err = s.Process(b.ctx, []*consumer.Message{next}, b.record, nil)
	require.NoError(t, err)
	b.requireEffects(2)
}

func TestShutdownDoesNotCutTheCommitShort(t *testing.T) {
	b := newBench(t, inbox.Config{})
	ctx, cancel := context.WithCancel(b.ctx)
	got, err := b.Process(ctx, subscriber, []*consumer.Message{message("a", "x")},
		b.do(func(context.Context, pgx.Tx) error {
			cancel()
			return nil
		}))
	require.NoError(t, err)
	require.Equal(t, verdicts(consumer.Processed), got)
	b.requireEffects(1)
}
