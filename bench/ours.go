package main

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"github.com/jackc/pgx/v5"

	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/inbox"
)

var errFailing = errors.New("this order fails")

// ours is a worker of this library.
func (w *work) ours(ctx context.Context, b broker) error {
	source, id, err := b.source(w.Queue)
	if err != nil {
		return err
	}
	in, err := inbox.NewWithConfig(w.pool, inbox.Config{Schema: w.Schema})
	if err != nil {
		return err
	}
	cfg := consumer.Config[pgx.Tx]{
		Subscriber: subscriber,
		Source:     meteredSource{source, w.meter},
		Inbox:      in,
		MessageID:  id,
		MaxBatch:   w.Case.MaxBatch,
		Workers:    w.workersPerStream(),
		Logger:     slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	switch {
	case w.Case.Batch:
		cfg.Batch = consumer.BatchHandlerFunc[pgx.Tx](w.setBySet)
	case w.Case.Queued:
		cfg.Handler = consumer.JSON(func(_ context.Context, tx pgx.Tx, o order) error {
			return inbox.Queue(tx, w.sql.update, o.Account, o.Amount)
		})
	default:
		cfg.Handler = consumer.JSON(func(ctx context.Context, tx pgx.Tx, o order) error {
			if o.Fail {
				return consumer.Permanent(errFailing)
			}
			_, err := tx.Exec(ctx, w.sql.update, o.Account, o.Amount)
			return err
		})
	}
	runner, err := consumer.New(cfg)
	if err != nil {
		return err
	}
	return runner.Run(ctx)
}

// workersPerStream is one for Kafka, which has as many partitions as there are
// workers.
func (w *work) workersPerStream() int {
	if w.Case.Broker == "kafka" {
		return 1
	}
	return w.Case.Workers
}

func (w *work) setBySet(ctx context.Context, tx pgx.Tx, ms []*consumer.Message) error {
	ids, amounts := make([]int, len(ms)), make([]int, len(ms))
	for i, m := range ms {
		o, err := consumer.DecodeJSON[order](m)
		if err != nil {
			return consumer.Blame(m, err)
		}
		ids[i], amounts[i] = o.Account, o.Amount
	}
	_, err := tx.Exec(ctx, w.sql.updateAll, ids, amounts)
	return err
}

// meteredSource counts acknowledgements, which come after the commit.
type meteredSource struct {
	consumer.Source
	meter *meter
}

// Check implements consumer.Checker.
func (s meteredSource) Check(ctx context.Context, p consumer.Plan) error {
	if c, ok := s.Source.(consumer.Checker); ok {
		return c.Check(ctx, p)
	}
	return nil
}

// Run implements consumer.Source.
func (s meteredSource) Run(ctx context.Context, serve func(context.Context, consumer.Stream) error) error {
	return s.Source.Run(ctx, func(ctx context.Context, stream consumer.Stream) error {
		return serve(ctx, meteredStream{stream, s.meter})
	})
}

type meteredStream struct {
	consumer.Stream
	meter *meter
}

// Ack implements consumer.Stream.
func (s meteredStream) Ack(ctx context.Context, ms ...*consumer.Message) error {
	err := s.Stream.Ack(ctx, ms...)
	s.meter.add(len(ms), func(i int) []byte { return ms[i].Body })
	return err
}
