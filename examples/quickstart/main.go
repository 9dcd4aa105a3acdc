// Quickstart delivers three payments twice, and PostgreSQL books each once.
//
//	make services && go run ./examples/quickstart
package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"log"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ackafter/ackafter/brokers/memory"
	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/examples/internal/local"
	"github.com/ackafter/ackafter/inbox"
	"github.com/ackafter/ackafter/migrations"
)

func main() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	pool, err := pgxpool.New(ctx, local.Getenv("DATABASE_URL")) // yours: os.Getenv
	check(err)
	check(migrations.Apply(ctx, pool, migrations.Config{})) // the inbox's own tables
	_, err = pool.Exec(ctx, `create table if not exists quickstart (payment text)`)
	check(err)
	broker := memory.New() // yours: rabbitmq.Queue(os.Getenv("AMQP_URL"), "payments")
	runner, err := consumer.New(consumer.Config[pgx.Tx]{
		Subscriber: "quickstart",
		Source:     broker,
		Inbox:      inbox.New(pool),
		Handler: consumer.JSON(func(ctx context.Context, tx pgx.Tx, payment struct{ ID string }) error {
			_, err := tx.Exec(ctx, `insert into quickstart values ($1)`, payment.ID)
			return err
		}),
	})
	check(err)
	ids := []string{rand.Text(), rand.Text(), rand.Text()}
	for _, id := range ids {
		m := &consumer.Message{ID: id, Body: fmt.Appendf(nil, `{"id": %q}`, id)}
		broker.Publish(m, m) // as a producer does that missed the first confirmation
	}
	go func() { check(broker.Drained(ctx)); stop() }() // yours stops at a signal
	check(runner.Run(ctx))
	var bookings, payments int
	check(pool.QueryRow(context.Background(), `select count(*), count(distinct payment) from quickstart
		where payment = any ($1)`, ids).Scan(&bookings, &payments))
	fmt.Printf("6 deliveries of 3 payments: %d payments are booked, %d times in all\n", payments, bookings)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
