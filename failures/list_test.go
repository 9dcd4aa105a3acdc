package failures_test

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/failures"
)

func ids(l failures.List) (all []string) {
	for _, m := range l.Messages {
		all = append(all, m.Subscriber+"/"+m.ID)
	}
	return all
}

func TestGetReturnsTheWholeMessage(t *testing.T) {
	b := newBench(t, failures.Config{})
	f := failure("m1", time.Hour)
	m := f.Message
	m.Type, m.Topic, m.Position, m.Key, m.Body = "paid", "payments", "payments/3@7", []byte{0, 0xff}, []byte("a\x00b\xff")
	m.Time = time.UnixMilli(1_700_000_000_123)
	m.Headers = consumer.Headers{{Key: "k", Value: nil}, {Key: "\xff\x00", Value: []byte{}}}
	b.setAside(subscriber, f)
	got, err := b.Get(b.ctx, subscriber, "m1")
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), got.FailedAt, time.Minute)
	require.Equal(t, got.FailedAt, got.LastFailedAt)
	require.WithinDuration(t, got.FailedAt.Add(time.Hour), got.NextAttempt, time.Millisecond)
	require.True(t, m.Time.Equal(got.Time))
	require.False(t, got.ForGood())
	want := &failures.Message{
		Summary: failures.Summary{
			Subscriber: subscriber, ID: "m1", Reason: consumer.ReasonFailed, Error: "no", Attempts: 3,
			FailedAt: got.FailedAt, LastFailedAt: got.LastFailedAt, NextAttempt: got.NextAttempt,
			Type: "paid", Topic: "payments", Time: got.Time, Position: "payments/3@7", BodyBytes: 4,
		},
		Key: failures.Data{0, 0xff}, Body: failures.Data("a\x00b\xff"),
		Headers: []failures.Header{{Key: failures.Data("k")}, {Key: failures.Data("\xff\x00"), Value: failures.Data{}}},
	}
	require.Equal(t, want, got)
	list, err := b.List(b.ctx, failures.Filter{}, failures.Page{})
	require.NoError(t, err)
	require.Equal(t, failures.List{Messages: []failures.Summary{want.Summary}}, list)
}

func TestGetNilAndEmpty(t *testing.T) {
	b := newBench(t, failures.Config{})
	tombstone, empty := failure("m1", forGood), failure("m2", forGood)
	tombstone.Message.Body, empty.Message.Body = nil, []byte{}
	b.setAside(subscriber, tombstone, empty)
	for id, body := range map[string]failures.Data{"m1": nil, "m2": {}} {
		got, err := b.Get(b.ctx, subscriber, id)
		require.NoError(t, err)
		require.Equal(t, body, got.Body)
		require.Nil(t, got.Key)
		require.True(t, got.ForGood())
		require.True(t, got.Time.IsZero())
	}
}

func TestWhatIsNotSetAsideIsNotFound(t *testing.T) {
	b := newBench(t, failures.Config{})
	b.setAside(subscriber, failure("m1", forGood))
	for _, at := range [][2]string{{subscriber, "m2"}, {"shipping", "m1"}, {subscriber, "m\x001"}, {"\xff", "m1"}, {"", ""}} {
		_, err := b.Get(b.ctx, at[0], at[1])
		require.ErrorIs(t, err, failures.ErrNotFound)
		require.ErrorIs(t, b.Retry(b.ctx, at[0], at[1]), failures.ErrNotFound)
		require.ErrorIs(t, b.LetGo(b.ctx, at[0], at[1], "obsolete"), failures.ErrNotFound)
	}
}

// Each field of the filter, alone and in RetryAll and Export, too, which use the
// same conditions.
func TestFilter(t *testing.T) {
	b := newBench(t, failures.Config{})
	later, permanent, late := failure("m2", time.Hour), failure("m3", forGood), failure("m1", forGood)
	later.Error, permanent.Reason, late.Reason = "100% no_more", consumer.ReasonPermanent, consumer.ReasonLate
	b.setAside(subscriber, failure("m1", forGood), later, permanent)
	b.setAside("shipping", late)
	all, err := b.List(b.ctx, failures.Filter{}, failures.Page{})
	require.NoError(t, err)
	third := all.Messages[2].FailedAt
	const m1, m2, m3, other = "billing/m1", "billing/m2", "billing/m3", "shipping/m1"
	for name, c := range map[string]struct {
		failures.Filter
		want []string
	}{
		"all":                {failures.Filter{}, []string{m1, m2, m3, other}},
		"subscriber":         {failures.Filter{Subscriber: subscriber}, []string{m1, m2, m3}},
		"unknown subscriber": {failures.Filter{Subscriber: "nobody"}, nil},
		"reason":             {failures.Filter{Reasons: []consumer.Reason{consumer.ReasonPermanent}}, []string{m3}},
		"reasons":            {failures.Filter{Reasons: []consumer.Reason{consumer.ReasonPermanent, consumer.ReasonLate}}, []string{m3, other}},
		"no reasons":         {failures.Filter{Reasons: []consumer.Reason{}}, nil},
		"ids":                {failures.Filter{IDs: []string{"m1", "m3"}}, []string{m1, m3, other}},
		"no ids":             {failures.Filter{IDs: []string{}}, nil},
		"since":              {failures.Filter{FailedSince: third}, []string{m3, other}},
		"before":             {failures.Filter{FailedBefore: third}, []string{m1, m2}},
		"for good":           {failures.Filter{ForGood: true}, []string{m1, m3, other}},
		"error":              {failures.Filter{ErrorContains: "0% no_"}, []string{m2}},
		"error's case":       {failures.Filter{ErrorContains: "NO_"}, nil},
		"several":            {failures.Filter{Subscriber: subscriber, IDs: []string{"m1"}, ForGood: true}, []string{m1}},
	} {
		got, err := b.List(b.ctx, c.Filter, failures.Page{})
		require.NoError(t, err, name)
		require.Equal(t, c.want, ids(got), name)
		counts, err := b.Count(b.ctx, c.Filter)
		require.NoError(t, err, name)
		var sum int64
		for _, n := range counts {
			sum += n.Messages
		}
		require.EqualValues(t, len(c.want), sum, name)
		dry, err := b.RetryAll(b.ctx, c.Filter, failures.RetryOptions{DryRun: true})
		require.NoError(t, err, name)
		require.Equal(t, failures.RetryResult{Messages: int64(len(c.want))}, dry, name)
	}
	b.requireDue(0)
}

func TestCount(t *testing.T) {
	b := newBench(t, failures.Config{})
	permanent := failure("m3", forGood)
	permanent.Reason = consumer.ReasonPermanent
	b.setAside(subscriber, failure("m1", time.Hour), failure("m2", forGood), permanent)
	b.setAside("shipping", failure("m1", time.Hour))
	all, err := b.List(b.ctx, failures.Filter{}, failures.Page{})
	require.NoError(t, err)
	at := func(i int) time.Time { return all.Messages[i].FailedAt }
	got, err := b.Count(b.ctx, failures.Filter{})
	require.NoError(t, err)
	require.Equal(t, []failures.Count{
		{Subscriber: subscriber, Reason: consumer.ReasonFailed, Messages: 2, ForGood: 1, Oldest: at(0)},
		{Subscriber: subscriber, Reason: consumer.ReasonPermanent, Messages: 1, ForGood: 1, Oldest: at(2)},
		{Subscriber: "shipping", Reason: consumer.ReasonFailed, Messages: 1, ForGood: 0, Oldest: at(3)},
	}, got)
}

// Pages of any size make the whole list, while messages come and go, and among
// messages of one time.
func TestPages(t *testing.T) {
	b := newBench(t, failures.Config{})
	b.fill(200)
	b.MustExec(t, "update %s.failed_messages set failed_at = date_trunc('minute', failed_at)")
	for _, f := range []failures.Filter{{}, {Subscriber: "s3"}, {Subscriber: "s3", Reasons: []consumer.Reason{"failed"}}} {
		whole, err := b.List(b.ctx, f, failures.Page{Limit: 1000})
		require.NoError(t, err)
		require.Empty(t, whole.Next)
		want := ids(whole)
		require.True(t, slices.IsSortedFunc(whole.Messages, func(x, y failures.Summary) int { return x.FailedAt.Compare(y.FailedAt) }))
		for _, limit := range []int{1, 7, 100, len(want) - 1, len(want), len(want) + 1} {
			var got []string
			var page failures.List
			for first := true; first || page.Next != ""; first = false {
				page, err = b.List(b.ctx, f, failures.Page{Limit: limit, After: page.Next})
				require.NoError(t, err)
				require.LessOrEqual(t, len(page.Messages), limit)
				got = append(got, ids(page)...)
			}
			require.Equal(t, want, got, "%d in a page", limit)
		}
	}
	first, err := b.List(b.ctx, failures.Filter{}, failures.Page{Limit: 100})
	require.NoError(t, err)
	want, err := b.List(b.ctx, failures.Filter{}, failures.Page{After: first.Next})
	require.NoError(t, err)
	last := first.Messages[99]
	require.NoError(t, b.LetGo(b.ctx, last.Subscriber, last.ID, "obsolete"))
	got, err := b.List(b.ctx, failures.Filter{}, failures.Page{After: first.Next})
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// A cursor is a place among all messages, whatever the filter it came from.
func TestCursorWithAnotherFilter(t *testing.T) {
	b := newBench(t, failures.Config{})
	b.fill(100)
	b.MustExec(t, "update %s.failed_messages set failed_at = date_trunc('minute', failed_at)")
	all, err := b.List(b.ctx, failures.Filter{}, failures.Page{})
	require.NoError(t, err)
	for i := range all.Messages[:len(all.Messages)-1] {
		before, err := b.List(b.ctx, failures.Filter{}, failures.Page{Limit: i + 1})
		require.NoError(t, err)
		got, err := b.List(b.ctx, failures.Filter{Subscriber: "s10"}, failures.Page{After: before.Next})
		require.NoError(t, err)
		var want []string
		for _, m := range all.Messages[i+1:] {
			if m.Subscriber == "s10" {
				want = append(want, m.Subscriber+"/"+m.ID)
			}
		}
		require.Equal(t, want, ids(got), "after %d", i)
	}
}

func TestMistakesAreRefused(t *testing.T) {
	b := newBench(t, failures.Config{})
	_, err := failures.New(nil, failures.Config{Schema: "a\x00b", LockTimeout: -1})
	require.ErrorContains(t, err, "the pool is nil")
	require.ErrorContains(t, err, "Config.Schema")
	require.ErrorContains(t, err, "Config.LockTimeout")

	bad := failures.Filter{Subscriber: "\xff", IDs: []string{"ok", "a\x00"}, Reasons: []consumer.Reason{"\xff"}, ErrorContains: "\x00"}
	_, err = b.List(b.ctx, bad, failures.Page{})
	for _, field := range []string{"Subscriber", "IDs", "Reasons", "ErrorContains"} {
		require.ErrorContains(t, err, "failures.Filter."+field)
	}
	for _, cursor := range []failures.Cursor{"!", "e30", "bnVsbA", "W10"} {
		_, err = b.List(b.ctx, failures.Filter{}, failures.Page{After: cursor})
		require.ErrorIs(t, err, failures.ErrCursor)
		_, err = b.RetryAll(b.ctx, failures.Filter{}, failures.RetryOptions{After: cursor})
		require.ErrorIs(t, err, failures.ErrCursor)
	}
	for _, n := range []int{-1, failures.MaxLimit + 1} {
		_, err = b.List(b.ctx, failures.Filter{}, failures.Page{Limit: n})
		require.ErrorContains(t, err, "Page.Limit")
		_, err = b.RetryAll(b.ctx, failures.Filter{}, failures.RetryOptions{BatchSize: n})
		require.ErrorContains(t, err, "RetryOptions.BatchSize")
	}
	require.ErrorContains(t, b.LetGo(b.ctx, subscriber, "m1", " "), "needs a reason")
	require.ErrorContains(t, b.LetGo(b.ctx, subscriber, "m1", "\xff"), "UTF-8")
}

func TestErrorsNameTheCure(t *testing.T) {
	b := newBench(t, failures.Config{})
	missing, err := failures.New(b.Pool, failures.Config{Schema: b.Schema + "_not"})
	require.NoError(t, err)
	_, err = missing.Count(b.ctx, failures.Filter{})
	require.ErrorContains(t, err, "migrations.Apply")

	role := b.Schema + "_looker"
	b.MustExec(t, "create role "+role)
	t.Cleanup(func() { b.MustExec(t, "drop owned by "+role); b.MustExec(t, "drop role "+role) })
	cfg := b.Config().Copy()
	cfg.ConnConfig.RuntimeParams["role"] = role
	pool := b.poolOf(cfg)
	looker, err := failures.New(pool, failures.Config{Schema: b.Schema})
	require.NoError(t, err)
	_, err = looker.Count(b.ctx, failures.Filter{})
	require.ErrorContains(t, err, "grant usage on schema")

	// What docs/operators.md tells to grant is enough.
	b.setAside(subscriber, failure("m1", forGood), failure("m2", forGood))
	b.MustExec(t, fmt.Sprintf("grant usage on schema %%s to %[1]s; grant select on %%s.failed_messages to %[1]s", role))
	_, err = looker.Count(b.ctx, failures.Filter{})
	require.NoError(t, err)
	require.ErrorContains(t, looker.Retry(b.ctx, subscriber, "m1"), "grant usage on schema")
	b.MustExec(t, fmt.Sprintf("grant update, delete on %%s.failed_messages to %[1]s; grant select, insert on %%s.let_go_messages to %[1]s", role))
	require.NoError(t, looker.Retry(b.ctx, subscriber, "m1"))
	require.NoError(t, looker.LetGo(b.ctx, subscriber, "m1", "obsolete"))
	done, err := looker.RetryAll(b.ctx, failures.Filter{}, failures.RetryOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 1, done.Messages)
}

// What only looks on says so, and is served by a standby.
func TestLookingOnIsReadOnly(t *testing.T) {
	b := newBench(t, failures.Config{})
	b.setAside(subscriber, failure("m1", forGood))
	b.seen.queries = nil
	require.NoError(t, b.list(failures.Filter{}, "")())
	require.NoError(t, b.count(failures.Filter{})())
	require.NoError(t, b.retryAll(failures.Filter{}, true)())
	require.NoError(t, b.Export(b.ctx, io.Discard, failures.Filter{}))
	_, err := b.Get(b.ctx, subscriber, "m1")
	require.NoError(t, err)
	begins := 0
	for _, q := range b.seen.queries {
		if strings.HasPrefix(q.SQL, "begin") {
			begins++
			require.Contains(t, q.SQL, "read only")
		}
	}
	require.Equal(t, 6, begins, "Export looks for a second page")
}

// Every reason of a worker can be chosen and counted.
func TestEveryReasonIsChosen(t *testing.T) {
	b := newBench(t, failures.Config{})
	reasons := []consumer.Reason{
		consumer.ReasonFailed, consumer.ReasonPermanent, consumer.ReasonMismatch, consumer.ReasonLate, consumer.ReasonBehind,
		consumer.ReasonCrash, consumer.ReasonTooLarge, consumer.ReasonUnidentified,
	}
	for _, r := range reasons {
		f := failure(string(r), forGood)
		f.Reason = r
		b.setAside(subscriber, f)
	}
	for _, r := range reasons {
		list, err := b.List(b.ctx, failures.Filter{Reasons: []consumer.Reason{r}}, failures.Page{})
		require.NoError(t, err)
		require.Equal(t, []string{subscriber + "/" + string(r)}, ids(list))
	}
	counts, err := b.Count(b.ctx, failures.Filter{})
	require.NoError(t, err)
	require.Len(t, counts, len(reasons))
}
