package failures_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/failures"
)

const large = 100_000

// Among 100 000 messages no call that is about some of them reads the whole
// table. The plans are those of the statements that were sent, with their
// arguments. Run it with -v to see how long each takes.
func TestOneHundredThousand(t *testing.T) {
	b := newBench(t, failures.Config{})
	b.fill(large)
	failed := []consumer.Reason{consumer.ReasonPermanent}
	s1 := failures.Filter{Subscriber: "s1"}
	half := time.Now().Add(-150_000 * time.Second)
	middle := b.middle()
	for _, c := range []struct {
		name  string
		call  func() error
		index string // or the beginning of its name, where several will do
	}{
		{"list", b.list(failures.Filter{}, ""), "failed_messages_age"},
		{"list from the middle", b.list(failures.Filter{}, middle), "failed_messages_age"},
		{"list of a subscriber", b.list(s1, ""), "failed_messages_"},
		{"list of a subscriber from the middle", b.list(s1, middle), "failed_messages_"},
		{"list of a reason", b.list(failures.Filter{Subscriber: "s1", Reasons: failed}, ""), "failed_messages_"},
		{"list of a reason from the middle", b.list(failures.Filter{Subscriber: "s1", Reasons: failed}, middle), "failed_messages_"},
		{"list of ids", b.list(failures.Filter{Subscriber: "s1", IDs: []string{"m000001", "m000021"}}, ""), "failed_messages_pkey"},
		{"get", func() error { _, err := b.Get(b.ctx, "s1", "m000001"); return err }, "failed_messages_pkey"},
		{"retry", func() error { return b.Retry(b.ctx, "s1", "m000001") }, "failed_messages_pkey"},
		{"let go", func() error { return b.LetGo(b.ctx, "s1", "m000021", "obsolete") }, "failed_messages_pkey"},
		{"count of a subscriber", b.count(s1), "failed_messages_"},
		{"export of a subscriber", func() error { return b.Export(b.ctx, io.Discard, s1) }, "failed_messages_"},
		{"dry run of a reason", b.retryAll(failures.Filter{Subscriber: "s1", Reasons: failed}, true), "failed_messages_"},
		{"retry of a reason", b.retryAll(failures.Filter{Subscriber: "s1", Reasons: failed}, false), "failed_messages_"},
		{"retry of a subscriber", b.retryAll(s1, false), "failed_messages_"},
		{"retry of what failed before", b.retryAll(failures.Filter{FailedBefore: half}, false), "failed_messages_age"},
		{"a worker's take", func() error { _, err := b.work("s1", succeed); return err }, "failed_messages_"},
	} {
		b.seen.queries = nil
		began := time.Now()
		require.NoError(t, c.call(), c.name)
		took := time.Since(began)
		for _, q := range b.sent() {
			plan := b.explain(q)
			require.NotContains(t, plan, "Seq Scan", "%s:\n%s\n%s", c.name, q.SQL, plan)
			if !strings.Contains(plan, "Tid Scan") { // of what was locked before
				require.Contains(t, plan, c.index, "%s:\n%s\n%s", c.name, q.SQL, plan)
			}
			if strings.HasPrefix(c.name, "list") && c.index != "failed_messages_pkey" {
				require.NotContains(t, plan, "Sort", "%s:\n%s\n%s", c.name, q.SQL, plan)
			}
		}
		t.Logf("%-38s %v", c.name, took.Round(100*time.Microsecond))
	}
	b.logWhole()
	// With everything due, and as the pools' prepared statements may be planned.
	b.MustExec(t, "analyze %s.failed_messages")
	b.seen.queries = nil
	_, err := b.work("s1", succeed)
	require.NoError(t, err)
	take := b.sent()[0]
	require.Contains(t, take.SQL, "skip locked")
	require.Contains(t, b.explain(take), "failed_messages_due")
	require.Contains(t, b.explainGeneric(take.SQL, "s1', '15 s"), "failed_messages_due")
}

// logWhole logs how long it takes to go through everything.
func (b *bench) logWhole() {
	b.t.Helper()
	for _, c := range []struct {
		name string
		call func() error
	}{
		{"count of everything", b.count(failures.Filter{})},
		{"list of what is for good", b.list(failures.Filter{ForGood: true}, "")},
		{"list by an error that none has", b.list(failures.Filter{ErrorContains: "yes"}, "")},
		{"list of ids of any subscriber", b.list(failures.Filter{IDs: []string{"m000001"}}, "")},
		{"dry run of everything", b.retryAll(failures.Filter{}, true)},
		{"export of everything", func() error { return b.Export(b.ctx, io.Discard, failures.Filter{}) }},
	} {
		began := time.Now()
		require.NoError(b.t, c.call(), c.name)
		b.t.Logf("%-38s %v", c.name, time.Since(began).Round(100*time.Microsecond))
	}
	b.MustExec(b.t, "update %s.failed_messages set next_attempt_at = null")
	var ticks []time.Time
	began := time.Now()
	done, err := b.RetryAll(b.ctx, failures.Filter{}, failures.RetryOptions{
		Progress: func(failures.RetryResult) { ticks = append(ticks, time.Now()) }})
	require.NoError(b.t, err)
	took := time.Since(began)
	var batches []time.Duration
	for i, at := range ticks[1:] {
		batches = append(batches, at.Sub(ticks[i]))
	}
	tenth := len(ticks) / 10
	b.t.Logf("retry of everything: %d in %v, %.0f/s; the first tenth %v, the last %v, the longest batch of 1000 %v", done.Messages,
		took.Round(time.Millisecond), float64(done.Messages)/took.Seconds(), ticks[tenth-1].Sub(began).Round(time.Millisecond),
		ticks[len(ticks)-1].Sub(ticks[len(ticks)-1-tenth]).Round(time.Millisecond), slices.Max(batches).Round(time.Millisecond))
}

// middle is a cursor in the midst of all.
func (b *bench) middle() (c failures.Cursor) {
	b.t.Helper()
	for range large / 2 / failures.MaxLimit {
		page, err := b.List(b.ctx, failures.Filter{}, failures.Page{Limit: failures.MaxLimit, After: c})
		require.NoError(b.t, err)
		c = page.Next
	}
	return c
}

func (b *bench) list(f failures.Filter, after failures.Cursor) func() error {
	return func() error { _, err := b.List(b.ctx, f, failures.Page{After: after}); return err }
}

func (b *bench) count(f failures.Filter) func() error {
	return func() error { _, err := b.Count(b.ctx, f); return err }
}

func (b *bench) retryAll(f failures.Filter, dry bool) func() error {
	return func() error {
		_, err := b.RetryAll(b.ctx, f, failures.RetryOptions{DryRun: dry})
		return err
	}
}

// sent is what was sent of queries on failed_messages.
func (b *bench) sent() (all []pgx.TraceQueryStartData) {
	b.seen.mu.Lock()
	defer b.seen.mu.Unlock()
	for _, q := range b.seen.queries {
		if strings.Contains(q.SQL, "failed_messages") {
			all = append(all, q)
		}
	}
	require.NotEmpty(b.t, all)
	return all
}

func (b *bench) explain(q pgx.TraceQueryStartData) string {
	b.t.Helper()
	args := q.Args
	if len(args) > 0 && args[0] != pgx.QueryExecModeExec {
		args = append([]any{pgx.QueryExecModeExec}, args...)
	}
	rows, err := b.Query(b.ctx, "explain "+q.SQL, args...)
	require.NoError(b.t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(b.t, err)
	return strings.Join(lines, "\n")
}

// explainGeneric is explain for a statement whose plan does not know its
// argument.
func (b *bench) explainGeneric(sql, arg string) (plan string) {
	b.t.Helper()
	err := pgx.BeginFunc(b.ctx, b.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(b.ctx, "set local plan_cache_mode = force_generic_plan; prepare p as "+sql); err != nil {
			return err
		}
		rows, err := tx.Query(b.ctx, fmt.Sprintf("explain execute p('%s')", arg), pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			return err
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		plan = strings.Join(lines, "\n")
		if err != nil {
			return err
		}
		_, err = tx.Exec(context.WithoutCancel(b.ctx), "deallocate p")
		return err
	})
	require.NoError(b.t, err)
	return plan
}
