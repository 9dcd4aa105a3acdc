package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/inbox"
)

// workerVariable makes a worker of this program, and holds its workerConfig.
const workerVariable = "ACKAFTER_CHAOS_WORKER"

// exitOrphaned is the exit code of a worker whose parent is gone.
const exitOrphaned = 3

// handlers is how many orders a worker handles at once.
const handlers = 4

type workerConfig struct {
	Broker, BrokerURL, Queue string
	DatabaseURL, Schema      string
	Inbox                    bool
	MaxBatch                 int
}

func isWorker() bool { return os.Getenv(workerVariable) != "" }

// workerMain works until SIGTERM, until the parent kills it or is gone itself.
func workerMain() int {
	signal.Ignore(os.Interrupt) // Ctrl-C reaches us, too; the parent decides
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := work(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "chaos worker:", err)
		return 1
	}
	return 0
}

func work(ctx context.Context) error {
	var c workerConfig
	if err := json.Unmarshal([]byte(os.Getenv(workerVariable)), &c); err != nil {
		return fmt.Errorf("%s: %w", workerVariable, err)
	}
	b, err := brokerNamed(c.Broker)
	if err != nil {
		return err
	}
	source, err := b.source(c.BrokerURL, c.Queue, c.MaxBatch)
	if err != nil {
		return err
	}
	fp := &failpoint{Source: source, parent: &parentPipe{out: os.Stdout}, messageID: b.messageID}
	go obey(os.Stdin, func() { fp.armed.Store(true) })

	pool, err := openPool(ctx, c.DatabaseURL, handlers+1)
	if err != nil {
		return err
	}
	runner, err := newRunner(c, fp, pool)
	if err != nil {
		return err
	}
	if err := runner.Run(ctx); err != nil {
		return err // without closing the pool, which would wait for a handler that hangs
	}
	pool.Close()
	return nil
}

func openPool(ctx context.Context, url string, connections int32) (*pgxpool.Pool, error) {
	c, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	c.MaxConns = connections
	return pgxpool.NewWithConfig(ctx, c)
}

func newRunner(c workerConfig, fp *failpoint, pool *pgxpool.Pool) (*consumer.Runner[pgx.Tx], error) {
	var in consumer.Inbox[pgx.Tx] = noInbox{pool}
	if c.Inbox {
		var err error
		if in, err = inbox.NewWithConfig(pool, inbox.Config{Schema: c.Schema}); err != nil {
			return nil, err
		}
	}
	workers := handlers
	if c.MaxBatch > 1 {
		workers = 1 // on few accounts, batches of one process would wait for each other
	}
	return consumer.New(consumer.Config[pgx.Tx]{
		Subscriber:   "ledger",
		Source:       fp,
		Inbox:        in,
		MessageID:    fp.messageID,
		Handler:      consumer.JSON(ledger{c.Schema}.handler(c.MaxBatch)),
		MaxBatch:     c.MaxBatch,
		Workers:      workers,
		CrashLimit:   1000,                    // here, the messages are innocent
		DrainTimeout: 1500 * time.Millisecond, // less than a Kafka group waits here
	})
}
