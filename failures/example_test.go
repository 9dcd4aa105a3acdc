package failures_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/failures"
)

// What is set aside, how much of it, and since when.
func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	store, err := failures.New(pool, failures.Config{})
	if err != nil {
		log.Fatal(err)
	}
	counts, err := store.Count(ctx, failures.Filter{})
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range counts {
		fmt.Printf("%s: %d %s, %d of them for good, since %s\n",
			c.Subscriber, c.Messages, c.Reason, c.ForGood, c.Oldest.Format(time.DateTime))
	}
}

// Page by page, the oldest first.
func ExampleStore_List() {
	list := func(ctx context.Context, store *failures.Store) error {
		page := failures.Page{Limit: 1000}
		for {
			l, err := store.List(ctx, failures.Filter{Subscriber: "billing"}, page)
			if err != nil {
				return err
			}
			for _, m := range l.Messages {
				fmt.Println(m.FailedAt.Format(time.DateTime), m.ID, m.Error)
			}
			if l.Next == "" {
				return nil
			}
			page.After = l.Next
		}
	}
	_ = list
}

// One message whole, and then one more attempt at it.
func ExampleStore_Get() {
	again := func(ctx context.Context, store *failures.Store, id string) error {
		m, err := store.Get(ctx, "billing", id)
		if err != nil {
			return err
		}
		fmt.Printf("%d attempts, the last at %s: %s\n%s\n", m.Attempts, m.LastFailedAt.Format(time.DateTime), m.Error, m.Body)
		return store.Retry(ctx, "billing", id)
	}
	_ = again
}

// Once the cause is repaired: count first, then make due what failed of it. After
// an interruption, the same call does what is left.
func ExampleStore_RetryAll() {
	repaired := func(ctx context.Context, store *failures.Store) error {
		f := failures.Filter{
			Subscriber:    "billing",
			Reasons:       []consumer.Reason{consumer.ReasonFailed},
			ErrorContains: "no such account",
		}
		dry, err := store.RetryAll(ctx, f, failures.RetryOptions{DryRun: true})
		if err != nil {
			return err
		}
		done, err := store.RetryAll(ctx, f, failures.RetryOptions{Progress: func(r failures.RetryResult) {
			log.Printf("%d of %d", r.Messages, dry.Messages)
		}})
		if err != nil {
			return fmt.Errorf("%d were made due, go on after %s: %w", done.Messages, done.Next, err)
		}
		return nil
	}
	_ = repaired
}

// A message that a handler is running for is left alone.
func ExampleStore_LetGo() {
	giveUp := func(ctx context.Context, store *failures.Store, id string) error {
		err := store.LetGo(ctx, "billing", id, "cancelled by the customer, ticket 4711")
		switch {
		case errors.Is(err, failures.ErrBusy):
			return fmt.Errorf("a worker is trying %s at this moment, see what comes of it: %w", id, err)
		case errors.Is(err, failures.ErrNotFound):
			return fmt.Errorf("%s was processed in the meantime, or let go before: %w", id, err)
		}
		return err
	}
	_ = giveUp
}

// A line of JSON for each message, before somebody lets them go.
func ExampleStore_Export() {
	export := func(ctx context.Context, store *failures.Store) error {
		return store.Export(ctx, os.Stdout, failures.Filter{Subscriber: "billing", ForGood: true})
	}
	_ = export
}
