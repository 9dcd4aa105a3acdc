package inbox_test

import (
	"context"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ackafter/ackafter/brokers/memory"
	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/inbox"
	"github.com/ackafter/ackafter/migrations"
)

// An inbox goes into a runner's configuration. Its handler gets the
// transaction that holds the claim.
func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	if err := migrations.Apply(ctx, pool, migrations.Config{}); err != nil {
		log.Fatal(err)
	}
	type order struct {
		Account string
		Amount  int64
	}
	runner, err := consumer.New(consumer.Config[pgx.Tx]{
		Subscriber: "billing",
		Source:     memory.New(),
		Inbox:      inbox.New(pool),
		Handler: consumer.JSON(func(ctx context.Context, tx pgx.Tx, o order) error {
			_, err := tx.Exec(ctx, `update accounts set balance = balance - $2 where id = $1`, o.Account, o.Amount)
			return err
		}),
	})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(runner.Run(ctx))
}

// Tables in a schema of your own, handlers that need serializable
// transactions, and a short wait for rivals.
func ExampleNewWithConfig() {
	pool, err := pgxpool.New(context.Background(), os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	in, err := inbox.NewWithConfig(pool, inbox.Config{
		Schema:      "billing_inbox",
		Isolation:   pgx.Serializable,
		LockTimeout: 2 * time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	_ = in // goes into consumer.Config.Inbox
}

// A statement that may fail belongs into a savepoint: an error outside of one
// aborts the whole transaction, and the attempt.
func ExampleInbox_savepoint() {
	handler := func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
		err := pgx.BeginFunc(ctx, tx, func(savepoint pgx.Tx) error {
			_, err := savepoint.Exec(ctx, `insert into customers (id) values ($1)`, m.Key)
			return err
		})
		if err != nil {
			_, err = tx.Exec(ctx, `insert into refused (id, reason) values ($1, $2)`, m.ID, err.Error())
		}
		return err
	}
	_ = consumer.HandlerFunc[pgx.Tx](handler) // goes into consumer.Config.Handler
}

// With Config.MaxBatch, the statements of up to 100 messages go to the server in
// one round trip.
func ExampleQueue() {
	type order struct {
		Account string
		Amount  int64
	}
	cfg := consumer.Config[pgx.Tx]{
		MaxBatch: 100,
		Handler: consumer.JSON(func(_ context.Context, tx pgx.Tx, o order) error {
			return inbox.Queue(tx, `update accounts set balance = balance - $2 where id = $1`, o.Account, o.Amount)
		}),
	}
	_ = cfg // and Subscriber, Source, Inbox
}
