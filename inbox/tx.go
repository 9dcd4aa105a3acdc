package inbox

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// handlerTx is the transaction less the power to end it, or a savepoint in it.
// It embeds pgx.Tx so that a method which pgx adds one day does not keep this
// package from compiling.
type handlerTx struct {
	pgx.Tx
	guard     *guard
	savepoint bool
}

// Commit refuses, unless t is a savepoint.
func (t *handlerTx) Commit(ctx context.Context) error {
	if !t.savepoint {
		return ErrNotYours
	}
	return t.guard.do(func() error { return t.Tx.Commit(ctx) })
}

// Rollback refuses, unless t is a savepoint.
func (t *handlerTx) Rollback(ctx context.Context) error {
	if !t.savepoint {
		return ErrNotYours
	}
	return t.guard.do(func() error { return t.Tx.Rollback(ctx) })
}

// Conn panics, since it has no error to return, and a nil would be found out
// later and farther away. The runner makes a failed attempt of the panic.
func (t *handlerTx) Conn() *pgx.Conn { panic(ErrNotYours) }

var errLargeObjects = errors.New("inbox: pgx's large objects would outlive the handler's transaction: " +
	"call lo_create, lo_put and the like as SQL")

// LargeObjects panics, for it would hand out the transaction unguarded.
func (t *handlerTx) LargeObjects() pgx.LargeObjects { panic(errLargeObjects) }

// Begin sets a savepoint, which is the handler's to release or roll back to.
func (t *handlerTx) Begin(ctx context.Context) (sp pgx.Tx, err error) {
	err = t.guard.do(func() error {
		sp, err = t.Tx.Begin(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &handlerTx{Tx: sp, guard: t.guard, savepoint: true}, nil
}

func (t *handlerTx) Exec(ctx context.Context, sql string, args ...any) (tag pgconn.CommandTag, err error) {
	if err := t.guard.enter(); err != nil {
		return tag, err
	}
	tag, err = t.Tx.Exec(ctx, sql, args...)
	return tag, t.guard.leave(err)
}

func (t *handlerTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := t.guard.enter(); err != nil {
		return failed(err).Query()
	}
	rows, err := t.Tx.Query(ctx, sql, args...)
	return guardedRows{rows, t.guard}, t.guard.leave(err)
}

func (t *handlerTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := t.guard.enter(); err != nil {
		return failed(err).QueryRow()
	}
	row := t.Tx.QueryRow(ctx, sql, args...)
	_ = t.guard.leave(nil) // the row tells
	return guardedRow{row, t.guard}
}

func (t *handlerTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if err := t.guard.enter(); err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	results := t.Tx.SendBatch(ctx, b)
	_ = t.guard.leave(nil) // the results tell
	return guardedResults{results, t.guard}
}

func (t *handlerTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string,
	src pgx.CopyFromSource) (n int64, err error) {
	err = t.guard.do(func() error {
		n, err = t.Tx.CopyFrom(ctx, table, columns, src)
		return err
	})
	return n, err
}

func (t *handlerTx) Prepare(ctx context.Context, name, sql string) (desc *pgconn.StatementDescription, err error) {
	err = t.guard.do(func() error {
		desc, err = t.Tx.Prepare(ctx, name, sql)
		return err
	})
	return desc, err
}

// failed returns results of which each is err.
func failed(err error) pgx.BatchResults { return pgx.FailedBatchResults(&pgx.Batch{}, err) }
