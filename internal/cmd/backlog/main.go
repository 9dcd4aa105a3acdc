// Backlog shows what a worker needs to work off a long backlog in Kafka, as
// measured from outside:
//
//	bin/services run -- go run ./internal/cmd/backlog publish -messages 1000000
//	go build -o bin/backlog ./internal/cmd/backlog
//	bin/services run -- /usr/bin/time -v bin/backlog drain -messages 1000000
//
// The first writes the messages, of 1 KiB each. The second counts them into
// PostgreSQL, one transaction per message or batch, and ends when it has them
// all; "Maximum resident set size" is that of the whole process.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	kafkago "github.com/segmentio/kafka-go"

	"github.com/ackafter/ackafter/brokers/kafka"
	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/inbox"
	"github.com/ackafter/ackafter/migrations"
)

type options struct {
	topic, schema  string
	messages, size int
	workers        int
	partitions     int
	maxBatch       int
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "backlog:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("say publish or drain")
	}
	var o options
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.StringVar(&o.topic, "topic", "backlog", "topic, and consumer group")
	flags.StringVar(&o.schema, "schema", "backlog", "schema in PostgreSQL, which is dropped first")
	flags.IntVar(&o.messages, "messages", 1_000_000, "how many messages")
	flags.IntVar(&o.size, "size", 1024, "bytes of each")
	flags.IntVar(&o.workers, "workers", 4, "workers of the runner, per partition")
	flags.IntVar(&o.maxBatch, "max-batch", 1, "messages per transaction; above 1 their statements are queued")
	flags.IntVar(&o.partitions, "partitions", 1, "partitions of the topic")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	brokers := strings.Split(os.Getenv("KAFKA_BROKERS"), ",")
	switch args[0] {
	case "publish":
		return publish(ctx, brokers, o)
	case "drain":
		return drain(ctx, brokers, o)
	}
	return fmt.Errorf("say publish or drain, not %q", args[0])
}

func publish(ctx context.Context, brokers []string, o options) error {
	api := &kafkago.Client{Addr: kafkago.TCP(brokers...), Timeout: 30 * time.Second}
	created, err := api.CreateTopics(ctx, &kafkago.CreateTopicsRequest{
		Topics: []kafkago.TopicConfig{{Topic: o.topic, NumPartitions: o.partitions, ReplicationFactor: 1}},
	})
	if err == nil {
		err = created.Errors[o.topic]
	}
	if err != nil {
		return fmt.Errorf("topic %s: %w", o.topic, err)
	}
	writer := &kafkago.Writer{Addr: api.Addr, Topic: o.topic, BatchSize: 1000, BatchTimeout: 10 * time.Millisecond,
		BatchBytes: 10 << 20, RequiredAcks: kafkago.RequireAll}
	defer writer.Close()
	batch := make([]kafkago.Message, 1000)
	for i := range batch {
		batch[i].Value = bytes.Repeat([]byte{'a' + byte(i%26)}, o.size)
	}
	for left := o.messages; left > 0; left -= len(batch) {
		batch = batch[:min(left, len(batch))]
		// A writer changes what it is given.
		if err := writer.WriteMessages(ctx, append([]kafkago.Message{}, batch...)...); err != nil {
			return err
		}
	}
	fmt.Printf("published %d messages of %d bytes to %s\n", o.messages, o.size, o.topic)
	return nil
}

func drain(ctx context.Context, brokers []string, o options) error {
	pool, err := openDatabase(ctx, o)
	if err != nil {
		return err
	}
	defer pool.Close()
	in, err := inbox.NewWithConfig(pool, inbox.Config{Schema: o.schema})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	count := fmt.Sprintf("update %s.counters set n = n + 1 where id = $1", o.schema)
	var handled atomic.Int64
	runner, err := consumer.New(consumer.Config[pgx.Tx]{
		Subscriber: "backlog",
		Source:     kafka.Group(brokers, fmt.Sprintf("%s-%d", o.topic, time.Now().UnixNano()), o.topic),
		Inbox:      in,
		MessageID:  consumer.PositionID,
		Workers:    o.workers,
		MaxBatch:   o.maxBatch,
		Handler: consumer.HandlerFunc[pgx.Tx](func(ctx context.Context, tx pgx.Tx, m *consumer.Message) (err error) {
			counter := m.Raw.(*kafka.Record).Offset % counters
			if o.maxBatch > 1 {
				err = inbox.Queue(tx, count, counter)
			} else {
				_, err = tx.Exec(ctx, count, counter)
			}
			if handled.Add(1) == int64(o.messages) { // none fails here, and is handled twice
				stop()
			}
			return err
		}),
	})
	if err != nil {
		return err
	}
	began := time.Now()
	if err := runner.Run(ctx); err != nil {
		return err
	}
	var counted int
	err = pool.QueryRow(context.WithoutCancel(ctx), fmt.Sprintf("select sum(n) from %s.counters", o.schema)).Scan(&counted)
	fmt.Printf("counted %d messages in %v: %.0f messages per second\n",
		counted, time.Since(began).Round(time.Second), float64(counted)/time.Since(began).Seconds())
	if err == nil && counted != o.messages {
		err = fmt.Errorf("%d of %d messages were counted", counted, o.messages)
	}
	return err
}

// counters are several, so that workers do not wait for each other.
const counters = 1000

func openDatabase(ctx context.Context, o options) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(os.Getenv("DATABASE_URL"))
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(o.workers*o.partitions) + 1
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if _, err := pool.Exec(ctx, fmt.Sprintf("drop schema if exists %s cascade", o.schema)); err != nil {
		return nil, err
	}
	if err := migrations.Apply(ctx, pool, migrations.Config{Schema: o.schema}); err != nil {
		return nil, err
	}
	_, err = pool.Exec(ctx, fmt.Sprintf(`create table %[1]s.counters (id int primary key, n bigint not null);
		insert into %[1]s.counters select i, 0 from generate_series(0, %[2]d) i`, o.schema, counters-1))
	return pool, err
}
