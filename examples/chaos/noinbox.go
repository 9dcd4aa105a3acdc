package main

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ackafter/ackafter/consumer"
)

// noInbox is the control: begin, apply, commit, acknowledge. It loses nothing,
// and many consumers work just like it. But it does not know what it has
// processed, so that every redelivery takes effect again.
type noInbox struct{ pool *pgxpool.Pool }

// Process implements consumer.Inbox.
func (n noInbox) Process(ctx context.Context, _ string, ms []*consumer.Message,
	apply func(ctx context.Context, tx pgx.Tx, fresh []*consumer.Message) error) ([]consumer.Verdict, error) {
	err := pgx.BeginFunc(ctx, n.pool, func(tx pgx.Tx) error { return apply(ctx, tx, ms) })
	if err != nil {
		return nil, err
	}
	verdicts := make([]consumer.Verdict, len(ms))
	for i := range verdicts {
		verdicts[i] = consumer.Processed
	}
	return verdicts, nil
}
