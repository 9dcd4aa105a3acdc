package inbox_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/inbox"
)

func TestOneEffectPerMessage(t *testing.T) {
	b := newBench(t, inbox.Config{})
	for _, want := range []consumer.Verdict{consumer.Processed, consumer.Duplicate, consumer.Duplicate} {
		got, err := b.process(b.record, message("m1", "body"))
		require.NoError(t, err)
		require.Equal(t, verdicts(want), got)
	}
	b.requireEffects(1)
	b.requireIdle()
}

func TestOneEffectPerSubscriber(t *testing.T) {
	b := newBench(t, inbox.Config{})
	for _, subscriber := range []string{"billing", "shipping"} {
		got, err := b.Process(b.ctx, subscriber, []*consumer.Message{message("m1", "body")}, b.record)
		require.NoError(t, err)
		require.Equal(t, verdicts(consumer.Processed), got)
	}
	b.requireEffects(2)
}

func TestMismatch(t *testing.T) {
	b := newBench(t, inbox.Config{})
	_, err := b.process(b.record, message("m1", "one body"))
	require.NoError(t, err)

	got, err := b.process(b.record, message("m1", "another"))
	require.NoError(t, err)
	require.Equal(t, verdicts(consumer.Mismatch), got)

	got, err = b.process(b.record, message("m1", "")) // nothing to compare
	require.NoError(t, err)
	require.Equal(t, verdicts(consumer.Duplicate), got)
	b.requireEffects(1)
}

func TestBatch(t *testing.T) {
	b := newBench(t, inbox.Config{})
	_, err := b.process(b.record, message("old", "x"), message("taken", "x"))
	require.NoError(t, err)

	var order []string
	batch := []*consumer.Message{
		message("z", "1"), message("old", "x"), message("a", "2"), message("z", "1"),
		message("taken", "other"), message("a", "other"), message("m", ""),
	}
	got, err := b.process(func(ctx context.Context, tx pgx.Tx, fresh []*consumer.Message) error {
		for _, m := range fresh {
			order = append(order, m.ID)
		}
		return b.record(ctx, tx, fresh)
	}, batch...)
	require.NoError(t, err)
	require.Equal(t, []string{"z", "a", "m"}, order, "the order delivered")
	require.Equal(t, verdicts(consumer.Processed, consumer.Duplicate, consumer.Processed, consumer.Duplicate,
		consumer.Mismatch, consumer.Mismatch, consumer.Processed), got)
	b.requireEffects(5)
}

func TestNothingNewDoesNotCallApply(t *testing.T) {
	b := newBench(t, inbox.Config{})
	_, err := b.process(b.record, message("m1", "x"), message("m2", "x"))
	require.NoError(t, err)
	got, err := b.process(func(context.Context, pgx.Tx, []*consumer.Message) error {
		t.Error("called")
		return nil
	}, message("m2", "x"), message("m1", "x"))
	require.NoError(t, err)
	require.Equal(t, verdicts(consumer.Duplicate, consumer.Duplicate), got)

	got, err = b.process(nil)
	require.NoError(t, err)
	require.Empty(t, got)
	b.requireIdle()
}

func TestFailureLeavesNoTrace(t *testing.T) {
	b := newBench(t, inbox.Config{})
	fail := func(ctx context.Context, tx pgx.Tx, fresh []*consumer.Message) error {
		require.NoError(t, b.record(ctx, tx, fresh))
		return errHandler
	}
	_, err := b.process(fail, message("m1", "x"), message("m2", "x"))
	require.ErrorIs(t, err, errHandler)
	require.NotErrorIs(t, err, consumer.ErrOutage)
	b.requireEffects(0)

	require.PanicsWithValue(t, "oh", func() {
		_, _ = b.process(func(ctx context.Context, tx pgx.Tx, fresh []*consumer.Message) error {
			require.NoError(t, b.record(ctx, tx, fresh))
			panic("oh")
		}, message("m1", "x"))
	})
	b.requireEffects(0)
	b.requireIdle()

	_, err = b.process(b.record, message("m1", "x"), message("m2", "x"))
	require.NoError(t, err)
	b.requireEffects(2)
}

// Process is there for others than the runner, too: what the table cannot store
// is their mistake, and no outage.
func TestProcessRefusesWhatCannotBeStored(t *testing.T) {
	b := newBench(t, inbox.Config{})
	for _, bad := range []*consumer.Message{
		message("", "x"), message("a\x00", "x"), {ID: "m1", Hash: []byte("short")},
	} {
		_, err := b.process(b.record, message("good", "x"), bad)
		require.Error(t, err)
		require.NotErrorIs(t, err, consumer.ErrOutage)
	}
	_, err := b.Process(b.ctx, "", []*consumer.Message{message("m1", "x")}, b.record)
	require.ErrorContains(t, err, "subscriber")
	require.NotErrorIs(t, err, consumer.ErrOutage)
	b.requireEffects(0)
}

// The ids here are all that PostgreSQL can store, and must come back as they
// went.
func TestIDs(t *testing.T) {
	b := newBench(t, inbox.Config{})
	long := make([]byte, consumer.MaxIDBytes)
	for i := range long {
		long[i] = 'x'
	}
	ids := []string{"a", "A", " a", "a ", "ä", "a\u0308", `"`, `\`, "'", "{a,b}", "NULL", "null", "$1", "\t\n", "日本", string(long)}
	ms := make([]*consumer.Message, len(ids))
	for i, id := range ids {
		require.NoError(t, consumer.CheckID(id))
		ms[i] = message(id, "x")
	}
	for range 2 {
		_, err := b.process(b.record, ms...)
		require.NoError(t, err)
		b.requireEffects(len(ids))
	}
	for _, m := range ms {
		got, err := b.process(b.record, m)
		require.NoError(t, err)
		require.Equal(t, verdicts(consumer.Duplicate), got, m.ID)
	}
}
