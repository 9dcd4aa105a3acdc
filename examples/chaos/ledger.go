package main

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

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

// apply books one order: two entries and two balances, in one round trip. The
// accounts are locked in the order of their numbers, so that two orders never
// wait for each other.
func (l ledger) apply(ctx context.Context, tx pgx.Tx, o order) error {
	var b pgx.Batch
	b.Queue(l.sql(`insert into $schema.entries (order_id, account, cents) values ($1, $2, -$4::bigint), ($1, $3, $4)`),
		o.ID, o.From, o.To, o.Cents)
	move := func(account int, cents int64) {
		b.Queue(l.sql(`update $schema.accounts set balance = balance + $2 where id = $1`), account, cents)
	}
	if o.From < o.To {
		move(o.From, -o.Cents)
		move(o.To, o.Cents)
	} else {
		move(o.To, o.Cents)
		move(o.From, -o.Cents)
	}
	return tx.SendBatch(ctx, &b).Close()
}
