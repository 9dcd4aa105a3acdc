// Kafka-worker books the payments that arrive in a topic. It is made to be
// copied. DATABASE_URL and KAFKA_BROKERS (host:port, separated by commas) are
// required; TOPIC, GROUP, WORKERS and HTTP_ADDR have defaults. SIGTERM and
// Ctrl-C stop it within 30 seconds. It exits with 0 then, and with 1 when it
// cannot start or go on.
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
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ackafter/ackafter/brokers/kafka"
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
	group := cmp.Or(os.Getenv("GROUP"), "billing")
	source := kafka.Group(strings.Split(os.Getenv("KAFKA_BROKERS"), ","), group, cmp.Or(os.Getenv("TOPIC"), "payments"))
	runner, err := consumer.New(consumer.Config[pgx.Tx]{
		Subscriber:     group, // one name for both: another group is another subscriber
		Source:         source,
		Inbox:          inbox.New(pool),
		Handler:        consumer.JSON(book),
		MessageID:      consumer.HeaderID("message-id"),
		Workers:        workers,
		DrainTimeout:   12 * time.Second, // with AbandonTimeout, and the time to
		AbandonTimeout: 8 * time.Second,  // leave the group, below 30 s
	})
	if err != nil {
		return err
	}
	server, err := serveHealth(cmp.Or(os.Getenv("HTTP_ADDR"), "127.0.0.1:8080"), runner.Health, source.Partitions)
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

// payment is the body of a message; its id is the header message-id, and its
// key the account, so that the payments of one account keep their order.
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
// else 503 with the reason; and with the lag of each partition. It is not for a
// liveness probe, since to kill a worker that waits for its database helps nobody.
func serveHealth(addr string, health func() consumer.Health, partitions func() []kafka.PartitionHealth) (*http.Server, error) {
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
		_ = json.NewEncoder(w).Encode(struct {
			consumer.Health
			Partitions []kafka.PartitionHealth `json:"partitions"`
		}{h, partitions()})
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(listener) }() // until Close
	return server, nil
}
