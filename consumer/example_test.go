package consumer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/ackafter/ackafter/brokers/memory"
	"github.com/ackafter/ackafter/consumer"
)

// A message that is delivered twice takes effect once. In a worker, Source is
// that of a broker, Inbox is inbox.New(pool), and Tx is pgx.Tx.
func Example() {
	broker := memory.New()
	broker.Publish(
		&consumer.Message{ID: "o-1", Body: []byte("first order")},
		&consumer.Message{ID: "o-2", Body: []byte("second order")},
		&consumer.Message{ID: "o-1", Body: []byte("first order")},
	)
	runner, err := consumer.New(consumer.Config[*Tx]{
		Subscriber: "billing",
		Source:     broker,
		Inbox:      newInbox(),
		Handler: consumer.HandlerFunc[*Tx](func(ctx context.Context, tx *Tx, m *consumer.Message) error {
			fmt.Println("charging for the", string(m.Body))
			return tx.Do("charge for the " + string(m.Body))
		}),
		Logger: quietly,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := runUntilDrained(broker, runner); err != nil {
		fmt.Println(err)
	}
	// Output:
	// charging for the first order
	// charging for the second order
}

// New reports every mistake at once.
func ExampleNew() {
	_, err := consumer.New(consumer.Config[*Tx]{
		Source:  memory.New(),
		Inbox:   newInbox(),
		Workers: -1,
	})
	fmt.Println(err)
	// Output:
	// consumer.Config:
	// Subscriber: is required; it names this subscription in processed_messages
	// Handler: is required, and is nil
	// Workers: must not be negative
}

// Run ends with its context. In a worker that is one of signal.NotifyContext.
func ExampleRunner_Run() {
	broker := memory.New()
	cfg := exampleConfig(broker)
	ctx, stop := context.WithCancel(context.Background())
	cfg.Handler = consumer.HandlerFunc[*Tx](func(ctx context.Context, tx *Tx, m *consumer.Message) error {
		stop() // as SIGTERM would: this handler finishes all the same
		fmt.Println("handled", m.ID)
		return tx.Do(m.ID)
	})
	runner, err := consumer.New(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	broker.Publish(&consumer.Message{ID: "o-1"})
	fmt.Println("stopped:", runner.Run(ctx))
	// Output:
	// handled o-1
	// stopped: <nil>
}

func ExampleJSON() {
	type Order struct {
		Account string
		Amount  int
	}
	broker := memory.New()
	cfg := exampleConfig(broker)
	cfg.Handler = consumer.JSON(func(ctx context.Context, tx *Tx, o Order) error {
		fmt.Printf("charge %s with %d\n", o.Account, o.Amount)
		return tx.Do("charge " + o.Account)
	})
	runner, err := consumer.New(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	broker.Publish(&consumer.Message{ID: "o-1", Body: []byte(`{"account": "ada", "amount": 12}`)})
	if err := runUntilDrained(broker, runner); err != nil {
		fmt.Println(err)
	}
	// Output: charge ada with 12
}

// A handler that needs more of the message than its body decodes it itself.
func ExampleDecodeJSON() {
	type Order struct{ Account string }
	handler := consumer.HandlerFunc[*Tx](func(ctx context.Context, tx *Tx, m *consumer.Message) error {
		o, err := consumer.DecodeJSON[Order](m)
		if err != nil {
			return err // marked Permanent
		}
		fmt.Println(o.Account, "of", m.Headers.Get("tenant"))
		return nil
	})
	_ = handler.Handle(context.Background(), nil, &consumer.Message{
		Body:    []byte(`{"account": "ada"}`),
		Headers: consumer.Headers{{Key: "tenant", Value: []byte("north")}},
	})
	// Output: ada of north
}

func ExampleMux() {
	type Paid struct{ Order string }
	broker := memory.New()
	cfg := exampleConfig(broker)
	cfg.Handler = consumer.Mux[*Tx]{
		Handlers: map[string]consumer.Handler[*Tx]{
			"order.paid": consumer.JSON(func(ctx context.Context, tx *Tx, p Paid) error {
				fmt.Println("paid:", p.Order)
				return nil
			}),
		},
		Unknown: consumer.SkipUnknown,
	}
	runner, err := consumer.New(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	broker.Publish(
		&consumer.Message{ID: "e-1", Type: "order.viewed"},
		&consumer.Message{ID: "e-2", Type: "order.paid", Body: []byte(`{"order": "o-1"}`)},
	)
	if err := runUntilDrained(broker, runner); err != nil {
		fmt.Println(err)
	}
	// Output: paid: o-1
}

func ExampleHeaderID() {
	id := consumer.HeaderID("message-id", "id")
	fmt.Println(id(&consumer.Message{Headers: consumer.Headers{{Key: "id", Value: []byte("o-1")}}}))
	_, err := id(&consumer.Message{})
	fmt.Println(errors.Is(err, consumer.ErrNoID))
	// Output:
	// o-1 <nil>
	// true
}

// CloudEvents number their events within a source, so the source is part of the id.
func ExampleCloudEventID() {
	fmt.Println(consumer.CloudEventID(&consumer.Message{Headers: consumer.Headers{
		{Key: "ce_id", Value: []byte("17")},
		{Key: "ce_source", Value: []byte("/shop")},
	}}))
	// Output: 5:/shop/17 <nil>
}

// Ids that are unique within a tenant only.
func ExampleScopedID() {
	id := consumer.ScopedID(consumer.HeaderID("tenant"), consumer.BrokerID)
	for _, tenant := range []string{"north", "south"} {
		fmt.Println(id(&consumer.Message{
			ID:      "o-1",
			Headers: consumer.Headers{{Key: "tenant", Value: []byte(tenant)}},
		}))
	}
	// Output:
	// 5:north/o-1 <nil>
	// 5:south/o-1 <nil>
}

// A message that can never be handled is set aside for good at once. The inbox of
// this example cannot store it, so it stops the runner rather than being lost.
func ExamplePermanent() {
	broker := memory.New()
	cfg := exampleConfig(broker)
	cfg.Handler = consumer.HandlerFunc[*Tx](func(ctx context.Context, tx *Tx, m *consumer.Message) error {
		return consumer.Permanent(errors.New("no such account"))
	})
	runner, err := consumer.New(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	broker.Publish(&consumer.Message{ID: "o-1"})
	err = runUntilDrained(broker, runner)
	var message *consumer.MessageError
	if errors.As(err, &message) {
		fmt.Println(message)
	}
	// Output: message "o-1" at memory/0@0: permanent: no such account (it is not acknowledged)
}

// A handler that is told when to come back.
func ExampleRetryAfter() {
	broker := memory.New()
	cfg := exampleConfig(broker)
	cfg.Handler = consumer.HandlerFunc[*Tx](func(ctx context.Context, tx *Tx, m *consumer.Message) error {
		fmt.Println("attempt", m.Attempt)
		if m.Attempt < 3 {
			return consumer.RetryAfter(time.Millisecond, errors.New("the rate limit is reached"))
		}
		return tx.Do(m.ID)
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
	// Output:
	// attempt 1
	// attempt 2
	// attempt 3
}

// Middleware runs inside the transaction, once per attempt.
func ExampleMiddleware() {
	timed := func(next consumer.Handler[*Tx]) consumer.Handler[*Tx] {
		return consumer.HandlerFunc[*Tx](func(ctx context.Context, tx *Tx, m *consumer.Message) error {
			began := time.Now()
			err := next.Handle(ctx, tx, m)
			fmt.Println("within a second:", time.Since(began) < time.Second)
			return err
		})
	}
	broker := memory.New()
	cfg := exampleConfig(broker)
	cfg.Middleware = []consumer.Middleware[*Tx]{timed}
	cfg.Handler = consumer.HandlerFunc[*Tx](func(ctx context.Context, tx *Tx, m *consumer.Message) error {
		fmt.Println("handling", m.ID)
		return tx.Do(m.ID)
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
	// Output:
	// handling o-1
	// within a second: true
}

// A process with two subscriptions runs and stops them together.
func ExampleRunAll() {
	var runners []consumer.Runnable
	for _, subscriber := range []string{"billing", "shipping"} {
		cfg := exampleConfig(memory.New()) // a queue for each: on one, they would compete
		cfg.Subscriber = subscriber
		cfg.Handler = consumer.HandlerFunc[*Tx](func(ctx context.Context, tx *Tx, m *consumer.Message) error {
			return tx.Do(m.ID)
		})
		runner, err := consumer.New(cfg)
		if err != nil {
			fmt.Println(err)
			return
		}
		runners = append(runners, runner)
	}
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Millisecond) // as SIGTERM would
	defer stop()
	fmt.Println(consumer.RunAll(ctx, runners...))
	// Output: <nil>
}

// Health answers a readiness probe.
func ExampleRunner_Health() {
	cfg := exampleConfig(memory.New())
	cfg.Handler = consumer.HandlerFunc[*Tx](func(context.Context, *Tx, *consumer.Message) error { return nil })
	runner, err := consumer.New(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	ready := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := runner.Health()
		if !h.OK() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(h)
	})

	answer := httptest.NewRecorder()
	ready.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/ready", nil))
	fmt.Println(answer.Code, strings.Contains(answer.Body.String(), `"state":"starting"`))
	// Output: 503 true
}

// A BatchHandler writes several messages at once, and says which of them is to
// blame when it is one. How many it gets at once is a matter of the moment.
func ExampleBatchHandler() {
	broker := memory.New()
	cfg := exampleConfig(broker)
	cfg.MaxBatch = 10
	cfg.Batch = consumer.BatchHandlerFunc[*Tx](func(ctx context.Context, tx *Tx, ms []*consumer.Message) error {
		var names []string
		for _, m := range ms {
			name, err := consumer.DecodeJSON[string](m)
			if err != nil {
				return consumer.Blame(m, err)
			}
			fmt.Println("charge for the", name, "order")
			names = append(names, name)
		}
		return tx.Do(strings.Join(names, ","))
	})
	broker.Publish(
		&consumer.Message{ID: "o-1", Body: []byte(`"first"`)},
		&consumer.Message{ID: "o-2", Body: []byte(`"second"`)},
	)
	runner, err := consumer.New(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := runUntilDrained(broker, runner); err != nil {
		fmt.Println(err)
	}
	// Output:
	// charge for the first order
	// charge for the second order
}
