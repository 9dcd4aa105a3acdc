package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ackafter/ackafter/migrations"
)

// subscriber is that of every case.
const subscriber = "bench"

// notOld tells the rows of a case from those of fill.
const notOld = "processed_at > '2001-01-01'"

// database is the parent's side of PostgreSQL.
type database struct {
	pool *pgxpool.Pool
	old  string // the schema with many old rows; empty while there is none
}

func openDatabase(ctx context.Context) (*database, error) {
	url := os.Getenv("DATABASE_URL")
	if url == "" {
		return nil, errors.New("DATABASE_URL is not set: run it by bin/services run --")
	}
	pool, err := pgxpool.New(ctx, url)
	return &database{pool: pool}, err
}

func (d *database) close() { d.pool.Close() }

func (d *database) exec(ctx context.Context, schema, sql string, args ...any) error {
	_, err := d.pool.Exec(ctx, strings.ReplaceAll(sql, "$schema", pgx.Identifier{schema}.Sanitize()), args...)
	return err
}

// prepare makes the tables of a case, and returns their schema, which is to be
// dropped after an error, too.
func (d *database) prepare(ctx context.Context, c benchCase, all []order) (string, error) {
	schema := d.old
	if c.OldRows == 0 || schema == "" {
		schema = "bench_" + strings.ToLower(rand.Text()[:10])
		if err := migrations.Apply(ctx, d.pool, migrations.Config{Schema: schema}); err != nil {
			return schema, err
		}
		if err := d.exec(ctx, schema, "create table $schema.accounts (id int primary key, balance bigint not null)"); err != nil {
			return schema, err
		}
	}
	if c.OldRows > 0 && d.old == "" {
		if err := d.fill(ctx, schema, c.OldRows); err != nil {
			return schema, err
		}
		d.old = schema
	}
	statements := []string{
		"delete from $schema.failed_messages",
		"delete from $schema.processed_messages where " + notOld,
		"truncate $schema.accounts",
		fmt.Sprintf("insert into $schema.accounts select n, 0 from generate_series(0, %d) n", accounts-1),
	}
	for _, sql := range statements {
		if err := d.exec(ctx, schema, sql); err != nil {
			return schema, err
		}
	}
	if c.AllOld {
		if err := d.remember(ctx, schema, all); err != nil {
			return schema, err
		}
	}
	for _, sql := range []string{"vacuum analyze $schema.processed_messages", "vacuum analyze $schema.accounts", "checkpoint"} {
		if err := d.exec(ctx, schema, sql); err != nil {
			return schema, err
		}
	}
	return schema, nil
}

// remember writes the rows of messages as their first delivery leaves them, with
// the hash, so that a duplicate is compared.
func (d *database) remember(ctx context.Context, schema string, all []order) error {
	_, err := d.pool.CopyFrom(ctx, pgx.Identifier{schema, "processed_messages"}, []string{"subscriber_id", "message_id", "payload_hash"},
		pgx.CopyFromSlice(len(all), func(i int) ([]any, error) {
			return []any{subscriber, all[i].ID, all[i].hash()}, nil
		}))
	return err
}

// fill writes rows with random ids, as UUIDs are.
func (d *database) fill(ctx context.Context, schema string, n int) error {
	for _, sql := range []string{
		"alter table $schema.failed_messages drop constraint failed_messages_processed",
		"alter table $schema.processed_messages drop constraint processed_messages_pkey",
		fmt.Sprintf("insert into $schema.processed_messages (subscriber_id, message_id, processed_at) select '%s', gen_random_uuid()::text, '2000-01-01' from generate_series(1, %d)", subscriber, n),
		"alter table $schema.processed_messages add constraint processed_messages_pkey primary key (subscriber_id, message_id)",
		"alter table $schema.failed_messages add constraint failed_messages_processed foreign key (subscriber_id, message_id) " +
			"references $schema.processed_messages (subscriber_id, message_id)",
	} {
		if err := d.exec(ctx, schema, sql); err != nil {
			return err
		}
	}
	return nil
}

// audit makes sure that a figure stands for the right result.
func (d *database) audit(ctx context.Context, schema string, want expected) error {
	table := func(name string) string { return pgx.Identifier{schema, name}.Sanitize() }
	var got expected
	err := d.pool.QueryRow(ctx, "select (select coalesce(sum(balance), 0)::bigint from "+table("accounts")+
		"), (select count(*) from "+table("processed_messages")+" where "+notOld+"), (select count(*) from "+table("failed_messages")+")").
		Scan(&got.effects, &got.processed, &got.failed)
	if err == nil && got != want {
		err = fmt.Errorf("the database holds %+v, and there should be %+v", got, want)
	}
	return err
}

func (d *database) drop(ctx context.Context, schema string) error {
	if schema == "" || schema == d.old {
		return nil
	}
	return d.exec(ctx, schema, "drop schema if exists $schema cascade")
}

func (d *database) dropOldRows(ctx context.Context) error {
	if d.old == "" {
		return nil
	}
	return d.exec(ctx, d.old, "drop schema if exists $schema cascade")
}

// statements is the SQL of the loops by hand.
type statements struct{ insert, insertAll, update, updateAll string }

func newStatements(schema string) statements {
	s := pgx.Identifier{schema}.Sanitize()
	return statements{
		insert: "insert into " + s + ".processed_messages (subscriber_id, message_id) values ($1, $2) on conflict do nothing",
		insertAll: "insert into " + s + ".processed_messages (subscriber_id, message_id) select $1, id from unnest($2::text[]) id order by id " +
			"on conflict do nothing returning message_id",
		update: "update " + s + ".accounts set balance = balance + $2 where id = $1",
		updateAll: "update " + s + ".accounts a set balance = balance + o.sum from (select id, sum(amount) from " +
			"unnest($1::int[], $2::int[]) o (id, amount) group by id) o where a.id = o.id",
	}
}
