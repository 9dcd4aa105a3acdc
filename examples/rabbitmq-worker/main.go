// Rabbitmq-worker books the payments that arrive in a queue. It is made to be
// copied. DATABASE_URL and AMQP_URL are required; QUEUE, SUBSCRIBER, WORKERS
// and HTTP_ADDR have defaults. SIGTERM and Ctrl-C stop it within 30 seconds.
// It exits with 0 then, and with 1 when it cannot start or go on.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ackafter/ackafter/brokers/rabbitmq"
	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/inbox"
	"github.com/ackafter/ackafter/migrations"
)

func main() {
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stdout, nil)))
	if err := run(); err != nil {
		slog.Error("worker failed", "error", err)
		os.Exit(1) // what was not committed and acknowledged is delivered again
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	workers, err := strconv.Atoi(cmp.Or(os.Getenv("WORKERS"), "4"))
	if err != nil {
		return fmt.Errorf("WORKERS: %w", err)
	}
	if workers < 1 {
		return fmt.Errorf("WORKERS: must be at least 1, is %d", workers)
	}
	pool, err := openDatabase(ctx, workers)
	if err != nil {
		return fmt.Errorf("database: %w", err)
	}
	runner, err := consumer.New(consumer.Config[pgx.Tx]{
		Subscriber:     cmp.Or(os.Getenv("SUBSCRIBER"), "billing"),
		Source:         rabbitmq.Queue(os.Getenv("AMQP_URL"), cmp.Or(os.Getenv("QUEUE"), "payments")),
		Inbox:          inbox.New(pool),
		Handler:        consumer.JSON(book),
		Workers:        workers,
		DrainTimeout:   12 * time.Second, // with AbandonTimeout, and the time to
		AbandonTimeout: 8 * time.Second,  // close the connection, below 30 s
	})
	if err != nil {
		return err
	}
	server, err := serveHealth(cmp.Or(os.Getenv("HTTP_ADDR"), "127.0.0.1:8080"), runner.Health)
	if err != nil {
		return err
	}
	defer server.Close()
	if err := runner.Run(ctx); err != nil {
		return err // without closing the pool, which a handler that hangs may still hold
	}
	pool.Close()
	return nil
}

func openDatabase(ctx context.Context, workers int) (*pgxpool.Pool, error) {
	url := os.Getenv("DATABASE_URL")
	if url == "" {
		return nil, errors.New("DATABASE_URL is not set")
	}
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(workers) + 1 // one to spare, for a handler that needs the pool
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	return pool, migrations.Apply(ctx, pool, migrations.Config{})
}

// payment is the body of a message; its id is the property message-id.
type payment struct {
	Account string `json:"account"`
	Cents   int64  `json:"cents"`
}

// book takes effect once for each payment. It needs a table of yours:
// create table accounts (id text primary key, balance bigint not null).
func book(ctx context.Context, tx pgx.Tx, p payment) error {
	tag, err := tx.Exec(ctx, `update accounts set balance = balance + $2 where id = $1`, p.Account, p.Cents)
	if err == nil && tag.RowsAffected() == 0 {
		err = fmt.Errorf("there is no account %q", p.Account) // or the payment would vanish
	}
	return err
}

// serveHealth answers GET /readyz: 200 while messages are handled as they come,
// else 503 with the reason. It is not for a liveness probe, since to kill a
// worker that waits for its database helps nobody.
func serveHealth(addr string, health func() consumer.Health) (*http.Server, error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		h := health()
		w.Header().Set("Content-Type", "application/json")
		if !h.OK() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(h)
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(listener) }() // until Close
	return server, nil
}
