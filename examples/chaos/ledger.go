package main

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ackafter/ackafter/inbox"
	"github.com/ackafter/ackafter/migrations"
)

// ledger is the business: double-entry bookkeeping, in a schema of its own
// together with the tables of the inbox.
type ledger struct{ schema string }

// sql fills in the schema's name.
func (l ledger) sql(s string) string {
	return strings.ReplaceAll(s, "$schema", pgx.Identifier{l.schema}.Sanitize())
}

// create makes the tables. entries has no unique key on purpose: it would make
// an error of a double booking, and the audit could never find one.
func (l ledger) create(ctx context.Context, pool *pgxpool.Pool) error {
	if err := migrations.Apply(ctx, pool, migrations.Config{Schema: l.schema}); err != nil {
		return err
	}
	for _, statement := range []string{
		`create table $schema.accounts (id int primary key, balance bigint not null)`,
		`create table $schema.entries (order_id text not null, account int not null, cents bigint not null)`,
	} {
		if _, err := pool.Exec(ctx, l.sql(statement)); err != nil {
			return err
		}
	}
	_, err := pool.Exec(ctx, l.sql(`insert into $schema.accounts select id, 0 from generate_series(0, $1::int - 1) id`), accounts)
	return err
}

func (l ledger) drop(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, l.sql(`drop schema if exists $schema cascade`))
	return err
}

// handler books one order at a time, or several in one transaction.
func (l ledger) handler(maxBatch int) func(context.Context, pgx.Tx, order) error {
	if maxBatch == 1 {
		return l.apply
	}
	return func(_ context.Context, tx pgx.Tx, o order) error {
		return l.statements(o, func(sql string, args ...any) error { return inbox.Queue(tx, sql, args...) })
	}
}

// apply books one order in one round trip.
func (l ledger) apply(ctx context.Context, tx pgx.Tx, o order) error {
	var b pgx.Batch
	_ = l.statements(o, func(sql string, args ...any) error {
		b.Queue(sql, args...)
		return nil
	})
	return tx.SendBatch(ctx, &b).Close()
}

// statements are what books an order: two entries and two balances. The accounts
// are locked in the order of their numbers, so that two orders never wait for
// each other. Two batches of them may: that is contention, and is tried again.
func (l ledger) statements(o order, send func(sql string, args ...any) error) error {
	move := func(account int, cents int64) error {
		return send(l.sql(`update $schema.accounts set balance = balance + $2 where id = $1`), account, cents)
	}
	first, second, cents := o.From, o.To, -o.Cents
	if o.From > o.To {
		first, second, cents = o.To, o.From, o.Cents
	}
	return errors.Join(
		send(l.sql(`insert into $schema.entries (order_id, account, cents) values ($1, $2, -$4::bigint), ($1, $3, $4)`),
			o.ID, o.From, o.To, o.Cents),
		move(first, cents),
		move(second, -cents),
	)
}
