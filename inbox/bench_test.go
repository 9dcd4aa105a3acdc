package inbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ackafter/ackafter/brokers/memory"
	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/inbox"
	"github.com/ackafter/ackafter/internal/pgtest"
)

// BenchmarkWorker compares one worker of the runner, from the memory broker
// with a backlog, with the loop that people write by hand: Begin, insert,
// update, Commit, four round trips. The metric msg/s is what to compare;
// `make bench` runs both in turn.
func BenchmarkWorker(b *testing.B) {
	b.Run("by=hand", benchmarkHand)
	b.Run("by=runner", benchmarkRunner)
}

func accounts(b *testing.B) *pgtest.DB {
	db := pgtest.New(b)
	db.MustExec(b, "create table %s.accounts (id int primary key, balance bigint not null)")
	db.MustExec(b, "insert into %s.accounts select n, 0 from generate_series(0, 999) n")
	return db
}

func benchmarkHand(b *testing.B) {
	db := accounts(b)
	ctx := context.Background()
	claim := db.SQL("insert into %s.processed_messages (subscriber_id, message_id) values ($1, $2) on conflict do nothing")
	update := db.SQL("update %s.accounts set balance = balance + $2 where id = $1")
	handle := func(id string, account int) error {
		tx, err := db.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback(ctx)
		tag, err := tx.Exec(ctx, claim, "bench", id)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return nil
		}
		if _, err := tx.Exec(ctx, update, account, 1); err != nil {
			return err
		}
		return tx.Commit(ctx)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		if err := handle("m"+strconv.Itoa(i), i%1000); err != nil {
			b.Fatal(err)
		}
	}
	reportRate(b, db)
}

func benchmarkRunner(b *testing.B) {
	db := accounts(b)
	broker := memory.New()
	for i := range b.N {
		broker.Publish(&consumer.Message{ID: "m" + strconv.Itoa(i), Body: fmt.Appendf(nil, "%d", i%1000)})
	}
	in, err := inbox.NewWithConfig(db.Pool, inbox.Config{Schema: db.Schema})
	if err != nil {
		b.Fatal(err)
	}
	update := db.SQL("update %s.accounts set balance = balance + $2 where id = $1")
	runner, err := consumer.New(consumer.Config[pgx.Tx]{
		Subscriber: "bench",
		Source:     broker,
		Inbox:      in,
		Handler: consumer.HandlerFunc[pgx.Tx](func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
			account, err := strconv.Atoi(string(m.Body))
			if err != nil {
				return err
			}
			_, err = tx.Exec(ctx, update, account, 1)
			return err
		}),
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	b.ReportAllocs()
	b.ResetTimer()
	done := make(chan error, 1)
	go func() { done <- runner.Run(ctx) }()
	if err := broker.Drained(ctx); err != nil {
		b.Fatal(err)
	}
	stop()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	reportRate(b, db)
}

// reportRate checks that every message took effect before it says how fast.
func reportRate(b *testing.B, db *pgtest.DB) {
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
	if sum := db.Int(b, "select sum(balance) from %s.accounts"); sum != b.N || db.Processed(b) != b.N {
		b.Fatalf("%d messages, %d effects, %d rows", b.N, sum, db.Processed(b))
	}
}
