package inbox_test

import (
	"context"
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
// insert, update, Commit, four round trips. Both take turns in one run, so
// that a noisy machine does not favour one; "x-hand" is the median of how many
// times as many messages per second the runner handled in a turn.
func BenchmarkWorker(b *testing.B) {
	hand, runner := newByHand(b), newByRunner(b)
	var ratios []float64
	var handTime, runnerTime time.Duration
	b.ResetTimer()
	for first := 0; first < b.N; first += turn {
		n := min(turn, b.N-first)
		h, r := hand.handle(b, first, n), runner.handle(b, first, n)
		handTime, runnerTime = handTime+h, runnerTime+r
		ratios = append(ratios, float64(h)/float64(r))
	}
	b.StopTimer()
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "x-hand")
	b.ReportMetric(float64(b.N)/handTime.Seconds(), "hand-msg/s")
	b.ReportMetric(float64(b.N)/runnerTime.Seconds(), "runner-msg/s")
	hand.check(b)
	runner.check(b)
}

// turn is how many messages one side handles before it is the other's turn: a
// second's worth or so, since right after a change the system schedules the
// client and the server differently from how it settles for a worker that goes
// on.
const turn = 2000

// BenchmarkFailurePolicy compares a runner that can set messages aside with one
// that cannot, when nothing fails: "x-off" is the median of how many times as
// many messages per second the former handled in a turn.
func BenchmarkFailurePolicy(b *testing.B) {
	on := newByRunner(b)
	off := newByRunnerOn(b, func(in *inbox.Inbox) consumer.Inbox[pgx.Tx] { return withoutFailures{in} })
	var ratios []float64
	b.ResetTimer()
	for first := 0; first < b.N; first += turn {
		n := min(turn, b.N-first)
		ratios = append(ratios, float64(off.handle(b, first, n))/float64(on.handle(b, first, n)))
	}
	b.StopTimer()
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "x-off")
	on.check(b)
	off.check(b)
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
}

func newAccounts(b *testing.B) accounts {
	db := pgtest.New(b)
	db.MustExec(b, "create table %s.accounts (id int primary key, balance bigint not null)")
	db.MustExec(b, "insert into %s.accounts select n, 0 from generate_series(0, 999) n")
	return accounts{db, db.SQL("update %s.accounts set balance = balance + $2 where id = $1")}
}

// check makes sure that the benchmark measured what it says.
func (a accounts) check(b *testing.B) {
	if sum := a.Int(b, "select sum(balance) from %s.accounts"); sum != b.N || a.Processed(b) != b.N {
		b.Fatalf("%d messages, %d effects, %d rows", b.N, sum, a.Processed(b))
	}
}

type byHand struct {
	accounts
	insert string
}

func newByHand(b *testing.B) byHand {
	a := newAccounts(b)
	return byHand{a, a.SQL("insert into %s.processed_messages (subscriber_id, message_id) values ($1, $2) on conflict do nothing")}
}

func (h byHand) handle(b *testing.B, first, n int) time.Duration {
	ctx := b.Context() // it can be cancelled, as a worker's must be
	began := time.Now()
	for i := first; i < first+n; i++ {
		if err := h.one(ctx, "m"+strconv.Itoa(i), i%1000); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(began)
}

func (h byHand) one(ctx context.Context, id string, account int) error {
	tx, err := h.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	tag, err := tx.Exec(ctx, h.insert, "bench", id)
	if err != nil || tag.RowsAffected() == 0 {
		return err
	}
	if _, err := tx.Exec(ctx, h.update, account, 1); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

type byRunner struct {
	accounts
	broker *memory.Broker
}

func newByRunner(b *testing.B) byRunner {
	return newByRunnerOn(b, func(in *inbox.Inbox) consumer.Inbox[pgx.Tx] { return in })
}

func newByRunnerOn(b *testing.B, wrap func(*inbox.Inbox) consumer.Inbox[pgx.Tx]) byRunner {
	r := byRunner{newAccounts(b), memory.New()}
	in, err := inbox.NewWithConfig(r.Pool, inbox.Config{Schema: r.Schema})
	if err != nil {
		b.Fatal(err)
	}
	runner, err := consumer.New(consumer.Config[pgx.Tx]{
		Subscriber: "bench",
		Source:     r.broker,
		Inbox:      wrap(in),
		Handler:    consumer.HandlerFunc[pgx.Tx](r.apply),
		Logger:     slog.New(slog.DiscardHandler),
	})
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

func (r byRunner) apply(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
	account, err := strconv.Atoi(string(m.Body))
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, r.update, account, 1)
	return err
}

func (r byRunner) handle(b *testing.B, first, n int) time.Duration {
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
