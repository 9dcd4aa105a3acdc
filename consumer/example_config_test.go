package consumer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ackafter/ackafter/brokers/memory"
	"github.com/ackafter/ackafter/consumer"
)

// Classify knows the errors that a library of yours returns, so that no handler has
// to. OnSetAside tells somebody.
func ExampleFailure() {
	errNoAccount := errors.New("no such account")
	broker, dead := memory.New(), memory.New()
	cfg := exampleConfig(broker)
	cfg.DeadLetter = dead.DeadLetter() // without it, in failed_messages
	cfg.Classify = func(err error) error {
		if errors.Is(err, errNoAccount) {
			return consumer.Permanent(err) // no attempt can help
		}
		return err
	}
	cfg.OnSetAside = func(ctx context.Context, f consumer.Failure) {
		fmt.Printf("%s needs you: %s (%s)\n", f.Message.ID, f.Error, f.Reason)
	}
	cfg.Handler = consumer.HandlerFunc[*Tx](func(ctx context.Context, tx *Tx, m *consumer.Message) error {
		return errNoAccount
	})
	runner, err := consumer.New(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	broker.Publish(&consumer.Message{ID: "o-1"})
	if err := runUntilDrained(broker, runner); err != nil {
		fmt.Println(err)
	}
	// Output: o-1 needs you: permanent: no such account (permanent)
}

// A producer that stamps a new time into each retry sends another body under the
// same id. Hash chooses what has to be equal all the same.
func ExampleConfig_hash() {
	type order struct {
		Amount int
		SentAt string
	}
	broker := memory.New()
	cfg := exampleConfig(broker)
	cfg.Hash = func(m *consumer.Message) []byte {
		var o order
		if json.Unmarshal(m.Body, &o) != nil {
			return consumer.HashBody(m)
		}
		return fmt.Append(nil, o.Amount)
	}
	cfg.Handler = consumer.JSON(func(ctx context.Context, tx *Tx, o order) error {
		fmt.Println("charge", o.Amount)
		return tx.Do("charge")
	})
	runner, err := consumer.New(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	broker.Publish(
		&consumer.Message{ID: "o-1", Body: []byte(`{"amount": 12, "sentAt": "10:00"}`)},
		&consumer.Message{ID: "o-1", Body: []byte(`{"amount": 12, "sentAt": "10:01"}`)},
	)
	if err := runUntilDrained(broker, runner); err != nil {
		fmt.Println(err)
	}
	// Output: charge 12
}

// A function given to JSON finds the rest of the message in its context.
func ExampleMessageFrom() {
	type order struct{ Amount int }
	handler := consumer.JSON(func(ctx context.Context, tx *Tx, o order) error {
		m := consumer.MessageFrom(ctx)
		fmt.Println("charge", o.Amount, "for", m.ID, "of", m.Headers.Get("tenant"))
		return nil
	})
	_ = handler.Handle(context.Background(), nil, &consumer.Message{
		ID:      "o-1",
		Body:    []byte(`{"amount": 12}`),
		Headers: consumer.Headers{{Key: "tenant", Value: []byte("north")}},
	})
	// Output: charge 12 for o-1 of north
}

// While producers move from one header to another, and some to the broker's own
// property, one id serves.
func ExampleFirstID() {
	id := consumer.FirstID(consumer.HeaderID("message-id", "id"), consumer.BrokerID)
	fmt.Println(id(&consumer.Message{Headers: consumer.Headers{{Key: "id", Value: []byte("o-1")}}}))
	fmt.Println(id(&consumer.Message{ID: "o-2"}))
	// Output:
	// o-1 <nil>
	// o-2 <nil>
}
