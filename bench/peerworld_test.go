package main

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/inbox"
)

// peerWorld is a queue with some payments of 10 to account 1, and the account.
type peerWorld struct {
	t      *testing.T
	ctx    context.Context
	db     *database
	rabbit rabbitMQ
	schema string
	queue  string
	sent   int
}

func newPeerWorld(t *testing.T, ids ...string) *peerWorld {
	t.Helper()
	if testing.Short() {
		t.Skip("needs servers")
	}
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	w := &peerWorld{t: t, ctx: ctx, sent: len(ids)}
	b, err := newRabbitMQ()
	w.must(err)
	w.rabbit = b.(rabbitMQ)
	w.db, err = openDatabase(ctx)
	w.must(err)
	t.Cleanup(w.db.close)
	w.schema, err = w.db.prepare(ctx, benchCase{}, nil)
	t.Cleanup(func() { w.must(w.db.drop(context.Background(), w.schema)) })
	w.must(err)
	w.queue = w.schema
	w.must(w.rabbit.create(ctx, w.queue, 1))
	t.Cleanup(func() { w.must(w.rabbit.delete(context.Background(), w.queue)) })
	w.must(w.rabbit.do(func(ch *amqp.Channel) error {
		if err := ch.Confirm(false); err != nil {
			return err
		}
		for _, id := range ids {
			c, err := ch.PublishWithDeferredConfirmWithContext(ctx, "", w.queue, true, false, amqp.Publishing{
				DeliveryMode: amqp.Persistent, MessageId: id, Headers: amqp.Table{wamqp.DefaultMessageUUIDHeaderKey: id},
				Body: []byte(`{"account":1,"amount":10}`)})
			if err == nil {
				_, err = c.WaitContext(ctx)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}))
	return w
}

func (w *peerWorld) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// querier is a pool for Watermill's handlers, and a transaction for ours.
type querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

type peerHandler func(ctx context.Context, q querier) error

func (w *peerWorld) pay(ctx context.Context, q querier) error {
	_, err := q.Exec(ctx, strings.ReplaceAll("update $schema.accounts set balance = balance + 10 where id = 1", "$schema", w.schema))
	return err
}

func (w *peerWorld) count(sql string) (n int) {
	w.t.Helper()
	w.must(w.db.pool.QueryRow(w.ctx, strings.ReplaceAll(sql, "$schema", w.schema)).Scan(&n))
	return n
}

func (w *peerWorld) requirePaid(want int) {
	w.t.Helper()
	if got := w.count("select balance from $schema.accounts where id = 1"); got != want {
		w.t.Errorf("the account holds %d, and used to hold %d", got, want)
	}
}

func (w *peerWorld) wait(done <-chan struct{}) {
	w.t.Helper()
	select {
	case <-done:
	case <-w.ctx.Done():
		w.t.Fatal("nothing has happened for minutes")
	}
}

// router runs a Watermill router, until stop is called.
func (w *peerWorld) router(handle peerHandler, middlewares ...message.HandlerMiddleware) (router *message.Router, stop func()) {
	w.t.Helper()
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: closeTimeout}, watermill.NopLogger{})
	w.must(err)
	router.AddMiddleware(middlewares...)
	sub, err := wamqp.NewSubscriber(wamqp.NewDurableQueueConfig(w.rabbit.url), watermill.NopLogger{})
	w.must(err)
	addHandler(router, "payments", w.queue, sub, func(ctx context.Context, _ []byte) error { return handle(ctx, w.db.pool) })
	ctx, cancel := context.WithCancel(w.ctx)
	ended := make(chan error, 1)
	go func() { ended <- router.Run(ctx) }()
	return router, func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Error(err)
		}
	}
}

// watermill runs a router. What it returns waits until n deliveries have been
// dealt with, and stops it.
func (w *peerWorld) watermill(handle peerHandler, m message.HandlerMiddleware) func(n int) {
	w.t.Helper()
	dealtWith := make(chan struct{}, 10)
	outermost := func(h message.HandlerFunc) message.HandlerFunc {
		return func(m *message.Message) ([]*message.Message, error) {
			defer func() { dealtWith <- struct{}{} }()
			return h(m)
		}
	}
	_, stop := w.router(handle, outermost, m)
	return func(n int) {
		w.t.Helper()
		for range n {
			w.wait(dealtWith)
		}
		stop()
	}
}

// ours runs a worker of this library: until everything is settled, or until
// began, and then it is stopped at once.
func (w *peerWorld) ours(handle peerHandler, began <-chan struct{}) {
	w.t.Helper()
	source, id, err := w.rabbit.source(w.queue)
	w.must(err)
	in, err := inbox.NewWithConfig(w.db.pool, inbox.Config{Schema: w.schema})
	w.must(err)
	settled := make(chan struct{}, w.sent)
	cfg := consumer.Config[pgx.Tx]{
		Subscriber: subscriber, Source: toldSource{source, settled}, Inbox: in, MessageID: id,
		DrainTimeout: 100 * time.Millisecond,
		Logger:       discard(),
		Handler: consumer.HandlerFunc[pgx.Tx](func(ctx context.Context, tx pgx.Tx, _ *consumer.Message) error {
			return handle(ctx, tx)
		}),
	}
	runner, err := consumer.New(cfg)
	w.must(err)
	ctx, cancel := context.WithCancel(w.ctx)
	var running sync.WaitGroup
	running.Go(func() {
		if err := runner.Run(ctx); err != nil {
			w.t.Error(err)
		}
	})
	if began != nil {
		w.wait(began)
	} else {
		for range w.sent {
			w.wait(settled)
		}
	}
	cancel()
	running.Wait()
}

func discard() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// toldSource tells of each acknowledgement.
type toldSource struct {
	consumer.Source
	acked chan<- struct{}
}

// Check implements consumer.Checker.
func (s toldSource) Check(ctx context.Context, p consumer.Plan) error {
	return s.Source.(consumer.Checker).Check(ctx, p)
}

// Run implements consumer.Source.
func (s toldSource) Run(ctx context.Context, serve func(context.Context, consumer.Stream) error) error {
	return s.Source.Run(ctx, func(ctx context.Context, stream consumer.Stream) error {
		return serve(ctx, toldStream{stream, s.acked})
	})
}

type toldStream struct {
	consumer.Stream
	acked chan<- struct{}
}

// Ack implements consumer.Stream.
func (s toldStream) Ack(ctx context.Context, ms ...*consumer.Message) error {
	defer func() {
		for range ms {
			s.acked <- struct{}{}
		}
	}()
	return s.Stream.Ack(ctx, ms...)
}

// recorder is a publisher that keeps what it gets.
type recorder struct {
	mu sync.Mutex
	ms []*message.Message
}

// Publish implements message.Publisher.
func (r *recorder) Publish(_ string, ms ...*message.Message) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ms = append(r.ms, ms...)
	return nil
}

// Close implements message.Publisher.
func (r *recorder) Close() error { return nil }

func (r *recorder) reasons() (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.ms {
		all = append(all, m.Metadata.Get(middleware.ReasonForPoisonedKey))
	}
	return all
}
