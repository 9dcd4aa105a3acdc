package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ackafter/ackafter/brokers/memory"
	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/inbox"
	"github.com/ackafter/ackafter/internal/pgtest"
)

// BenchmarkWorker compares one worker of the runner, which reads a backlog
// from the memory broker, with the loop that people write by hand: Begin,
// insert, update, Commit, four round trips; and with the same loop without the
// insert, three. All take turns in one run, so that a noisy machine does not
// favour one; "x-hand" is the median of how many times as many messages per
// second the runner handled in a turn, and "x-bare" that without the insert.
func BenchmarkWorker(b *testing.B) {
	bare := newByHand(b)
	bare.insert = ""
	compare(b, "runner", newByRunner(b), map[string]contender{"hand": newByHand(b), "bare": bare})
}

// BenchmarkBatches compares a runner in batches of 100 with the loop by hand that
// commits 100 messages at once: one statement per message, and all of them in
// one round trip.
func BenchmarkBatches(b *testing.B) {
	b.Run("exec", func(b *testing.B) {
		compare(b, "runner", newByRunner(b, inBatches), map[string]contender{"ceiling": newByHandInBatches(b, false), "hand": newByHand(b)})
	})
	b.Run("queued", func(b *testing.B) {
		compare(b, "runner", newByRunner(b, inBatches, queued), map[string]contender{"ceiling": newByHandInBatches(b, true), "hand": newByHand(b)})
	})
	b.Run("handler", func(b *testing.B) {
		compare(b, "runner", newByRunner(b, setBySet), map[string]contender{"ceiling": newByHandInBatches(b, true), "hand": newByHand(b)})
	})
}

// contender is one side of a comparison.
type contender interface {
	handle(b *testing.B, first, n int) time.Duration
	check(b *testing.B)
}

// compare lets all sides take turns. It reports what each handled per second, and
// the medians of how many times as much the first one did as each other.
func compare(b *testing.B, name string, first contender, others map[string]contender) {
	times, ratios := map[string]time.Duration{}, map[string][]float64{}
	b.ResetTimer()
	for done := 0; done < b.N; done += turn {
		n := min(turn, b.N-done)
		took := first.handle(b, done, n)
		times[name] += took
		for other, c := range others {
			d := c.handle(b, done, n)
			times[other] += d
			ratios[other] = append(ratios[other], float64(d)/float64(took))
		}
	}
	b.StopTimer()
	first.check(b)
	for other, c := range others {
		c.check(b)
		slices.Sort(ratios[other])
		b.ReportMetric(ratios[other][len(ratios[other])/2], "x-"+other)
	}
	for side, d := range times {
		b.ReportMetric(float64(b.N)/d.Seconds(), side+"-msg/s")
	}
	b.ReportMetric(0, "ns/op") // of all sides together, which says nothing
}

// turn is how many messages one side handles before it is the other's turn: a
// second's worth or so, since right after a change the system schedules the
// client and the server differently from how it settles for a worker that goes
// on.
const turn = 2000

// BenchmarkFailurePolicy compares a runner that can set messages aside with one
// that cannot, when nothing fails.
func BenchmarkFailurePolicy(b *testing.B) {
	off := newByRunner(b, func(r *byRunner, cfg *consumer.Config[pgx.Tx]) { cfg.Inbox = withoutFailures{r.in} })
	compare(b, "on", newByRunner(b), map[string]contender{"off": off})
}

// withoutFailures is an inbox that can only process.
type withoutFailures struct{ in *inbox.Inbox }

func (w withoutFailures) Process(ctx context.Context, subscriber string, ms []*consumer.Message,
	apply func(ctx context.Context, tx pgx.Tx, fresh []*consumer.Message) error) ([]consumer.Verdict, error) {
	return w.in.Process(ctx, subscriber, ms, apply)
}

func (w withoutFailures) Session(subscriber string) consumer.Session[pgx.Tx] {
	return w.in.Session(subscriber)
}

// BenchmarkRunner is the runner alone, for profiles and allocations.
func BenchmarkRunner(b *testing.B) {
	runner := newByRunner(b)
	b.ReportAllocs()
	b.ResetTimer()
	runner.handle(b, 0, b.N)
	b.StopTimer()
	runner.check(b)
}

// accounts are what the handlers change.
type accounts struct {
	*pgtest.DB
	update string
	rows   bool // in processed_messages, one for each message
}

func newAccounts(b *testing.B) accounts {
	db := pgtest.New(b)
	db.MustExec(b, "create table %s.accounts (id int primary key, balance bigint not null)")
	db.MustExec(b, "insert into %s.accounts select n, 0 from generate_series(0, 999) n")
	return accounts{db, db.SQL("update %s.accounts set balance = balance + $2 where id = $1"), true}
}

// check makes sure that the benchmark measured what it says.
func (a accounts) check(b *testing.B) {
	if sum := a.Int(b, "select sum(balance) from %s.accounts"); sum != b.N || a.rows && a.Processed(b) != b.N {
		b.Fatalf("%d messages, %d effects, %d rows", b.N, sum, a.Processed(b))
	}
}

type byHand struct {
	accounts
	insert string // empty for none
}

func newByHand(b *testing.B) *byHand {
	a := newAccounts(b)
	return &byHand{a, a.SQL("insert into %s.processed_messages (subscriber_id, message_id) values ($1, $2) on conflict do nothing")}
}

func (h *byHand) handle(b *testing.B, first, n int) time.Duration {
	h.rows = h.insert != ""
	ctx := b.Context() // it can be cancelled, as a worker's must be
	began := time.Now()
	for i := first; i < first+n; i++ {
		if err := h.one(ctx, "m"+strconv.Itoa(i), i%1000); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(began)
}

func (h *byHand) one(ctx context.Context, id string, account int) error {
	tx, err := h.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if h.insert != "" {
		tag, err := tx.Exec(ctx, h.insert, "bench", id)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
	}
	if _, err := tx.Exec(ctx, h.update, account, 1); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// byHandInBatches commits 100 messages at once.
type byHandInBatches struct {
	accounts
	claim string
	queue bool
}

func newByHandInBatches(b *testing.B, queue bool) byHandInBatches {
	a := newAccounts(b)
	return byHandInBatches{a, a.SQL("insert into %s.processed_messages (subscriber_id, message_id) " +
		"select $1, id from unnest($2::text[]) id order by id on conflict do nothing returning message_id"), queue}
}

func (h byHandInBatches) handle(b *testing.B, first, n int) time.Duration {
	began := time.Now()
	for end := first + n; first < end; first += 100 {
		if err := h.some(b.Context(), first, min(first+100, end)); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(began)
}

func (h byHandInBatches) some(ctx context.Context, first, end int) error {
	ids := make([]string, 0, end-first)
	for i := first; i < end; i++ {
		ids = append(ids, "m"+strconv.Itoa(i))
	}
	conn, err := h.Pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	var b pgx.Batch
	b.Queue("begin")
	b.Queue(h.claim, "bench", ids)
	results := conn.SendBatch(ctx, &b)
	_, _ = results.Exec()
	rows, _ := results.Query()
	mine, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err := errors.Join(err, results.Close()); err != nil {
		return err
	}
	fresh := make(map[string]bool, len(mine))
	for _, id := range mine {
		fresh[id] = true
	}
	var updates pgx.Batch
	for i := first; i < end; i++ {
		switch {
		case !fresh[ids[i-first]]:
		case h.queue:
			updates.Queue(h.update, i%1000, 1)
		default:
			if _, err := conn.Exec(ctx, h.update, i%1000, 1); err != nil {
				return err
			}
		}
	}
	if h.queue {
		updates.Queue("commit")
		return conn.SendBatch(ctx, &updates).Close()
	}
	_, err = conn.Exec(ctx, "commit")
	return err
}

type byRunner struct {
	accounts
	in     *inbox.Inbox
	broker *memory.Broker
}

type option = func(r *byRunner, cfg *consumer.Config[pgx.Tx])

func inBatches(_ *byRunner, cfg *consumer.Config[pgx.Tx]) { cfg.MaxBatch = 100 }

func queued(r *byRunner, cfg *consumer.Config[pgx.Tx]) {
	cfg.Handler = consumer.HandlerFunc[pgx.Tx](func(_ context.Context, tx pgx.Tx, m *consumer.Message) error {
		account, err := strconv.Atoi(string(m.Body))
		if err != nil {
			return err
		}
		return inbox.Queue(tx, r.update, account, 1)
	})
}

func setBySet(r *byRunner, cfg *consumer.Config[pgx.Tx]) {
	update := r.SQL("update %s.accounts a set balance = balance + n from (select id, count(*) n from unnest($1::int[]) id group by id) m where a.id = m.id")
	cfg.Handler = nil
	cfg.Batch = consumer.BatchHandlerFunc[pgx.Tx](func(ctx context.Context, tx pgx.Tx, ms []*consumer.Message) error {
		ids := make([]int, len(ms))
		for i, m := range ms {
			id, err := strconv.Atoi(string(m.Body))
			if err != nil {
				return consumer.Blame(m, err)
			}
			ids[i] = id
		}
		_, err := tx.Exec(ctx, update, ids)
		return err
	})
}

func newByRunner(b *testing.B, options ...option) *byRunner {
	r := &byRunner{accounts: newAccounts(b), broker: memory.New()}
	var err error
	if r.in, err = inbox.NewWithConfig(r.Pool, inbox.Config{Schema: r.Schema}); err != nil {
		b.Fatal(err)
	}
	cfg := consumer.Config[pgx.Tx]{
		Subscriber: "bench",
		Source:     r.broker,
		Inbox:      r.in,
		Handler:    consumer.HandlerFunc[pgx.Tx](r.apply),
		Logger:     slog.New(slog.DiscardHandler),
	}
	for _, o := range options {
		o(r, &cfg)
	}
	runner, err := consumer.New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- runner.Run(ctx) }()
	b.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			b.Error(err)
		}
	})
	return r
}

func (r *byRunner) apply(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
	account, err := strconv.Atoi(string(m.Body))
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, r.update, account, 1)
	return err
}

func (r *byRunner) handle(b *testing.B, first, n int) time.Duration {
	backlog := make([]*consumer.Message, n)
	for i := range backlog {
		backlog[i] = &consumer.Message{ID: "m" + strconv.Itoa(first+i), Body: fmt.Appendf(nil, "%d", (first+i)%1000)}
	}
	began := time.Now()
	r.broker.Publish(backlog...)
	if err := r.broker.Drained(b.Context()); err != nil {
		b.Fatal(err)
	}
	return time.Since(began)
}

// BenchmarkRunnerQueued is that in batches.
func BenchmarkRunnerQueued(b *testing.B) {
	runner := newByRunner(b, inBatches, queued)
	b.ReportAllocs()
	b.ResetTimer()
	runner.handle(b, 0, b.N)
	b.StopTimer()
	runner.check(b)
}
