package inbox_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/inbox"
)

func TestHostileSingle(t *testing.T) {
	b := newBench(t, inbox.Config{})
	swallow := func(ctx context.Context, tx pgx.Tx) {
		short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
		_, _ = tx.Exec(short, "select pg_sleep(5)")
	}
	_, err := b.process(b.do(func(ctx context.Context, tx pgx.Tx) error {
		swallow(ctx, tx)
		return sql("select 1")(ctx, tx)
	}), message("m1", "x"))
	t.Log(err)
	if errors.Is(err, consumer.ErrOutage) {
		t.Error("outage")
	}
	_, err = b.process(b.do(func(ctx context.Context, tx pgx.Tx) error {
		swallow(ctx, tx)
		return inbox.Queue(tx, "select 1")
	}), message("m1", "x"))
	t.Log(err)
	if errors.Is(err, consumer.ErrOutage) {
		t.Error("outage")
	}
	b.requireEffects(0)
}

func TestHostileAutocommit(t *testing.T) {
	b := newBench(t, inbox.Config{})
	_, err := b.process(b.do(func(ctx context.Context, tx pgx.Tx) error {
		_ = sql("select 1; rollback")(ctx, tx)
		return sql(b.SQL("insert into %s.effects values ('m1')"))(ctx, tx)
	}), message("m1", "x"))
	require.ErrorIs(t, err, inbox.ErrTransactionEnded)
	b.requireEffects(0)
}

func TestHostileSavepointContention(t *testing.T) {
	b := newBench(t, inbox.Config{})
	for _, code := range []string{"40001", "40P01", "55P03"} {
		_, err := b.process(b.do(func(ctx context.Context, tx pgx.Tx) error {
			return pgx.BeginFunc(ctx, tx, func(sp pgx.Tx) error {
				return sql("do $$ begin raise exception 'rival' using errcode = '"+code+"'; end $$")(ctx, sp)
			})
		}), message("m1", "x"))
		require.ErrorIs(t, err, consumer.ErrContention, code)
	}
	// real lock timeout in a savepoint
	b.MustExec(t, "create table %s.acc (id int primary key, n int)")
	b.MustExec(t, "insert into %s.acc values (1, 0)")
	tx, err := b.Pool.Begin(b.ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(b.ctx) }()
	_, err = tx.Exec(b.ctx, b.SQL("update %s.acc set n = 1"))
	require.NoError(t, err)
	_, err = b.process(b.do(func(ctx context.Context, tx pgx.Tx) error {
		return pgx.BeginFunc(ctx, tx, func(sp pgx.Tx) error {
			return sql(b.SQL("update %s.acc set n = 2"))(ctx, sp)
		})
	}), message("m1", "x"))
	require.ErrorIs(t, err, consumer.ErrContention)
}
