package inbox

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ackafter/ackafter/consumer"
)

// handlerTx is the transaction less the power to end it, or a savepoint in it.
// It embeds a nil pgx.Tx, so that a method which pgx adds one day does not keep
// this package from compiling.
type handlerTx struct {
	pgx.Tx
	conn      *pgx.Conn
	guard     *guard
	m         *consumer.Message // whose handler has it; nil outside of a batch
	savepoint string            // its name; empty for the transaction itself
	ended     atomic.Bool       // the savepoint
}

// For implements consumer.BatchTx.
func (t *handlerTx) For(m *consumer.Message) pgx.Tx {
	t.guard.turn(m)
	tx := t.guard.newTx()
	tx.conn, tx.guard, tx.m = t.conn, t.guard, m
	return tx
}

// Commit refuses, unless t is a savepoint.
func (t *handlerTx) Commit(ctx context.Context) error { return t.end(ctx, "release savepoint ") }

// Rollback refuses, unless t is a savepoint.
func (t *handlerTx) Rollback(ctx context.Context) error { return t.end(ctx, "rollback to savepoint ") }

func (t *handlerTx) end(ctx context.Context, sql string) error {
	if t.savepoint == "" {
		return ErrNotYours
	}
	_, err := t.exec(ctx, sql+t.savepoint)
	t.ended.Store(true)
	return err
}

// Begin sets a savepoint, which is the handler's to release or roll back to.
func (t *handlerTx) Begin(ctx context.Context) (pgx.Tx, error) {
	name := t.guard.nextSavepoint()
	if _, err := t.exec(ctx, "savepoint "+name); err != nil {
		return nil, err
	}
	return &handlerTx{conn: t.conn, guard: t.guard, m: t.m, savepoint: name}, nil
}

// enter sends what was queued, which goes first. It must be followed by
// guard.leave, unless it returns an error.
func (t *handlerTx) enter(ctx context.Context) (err error) {
	if t.ended.Load() {
		return pgx.ErrTxClosed
	}
	if err := t.guard.enter(t.m); err != nil {
		return err
	}
	flushed := false
	defer func() {
		if !flushed {
			_ = t.guard.leave(err)
		}
	}()
	if err = t.guard.flush(ctx, t.conn); err != nil {
		return err
	}
	flushed = true
	return nil
}

// Conn panics, since it has no error to return, and a nil would be found out
// later and farther away. The runner makes a failed attempt of the panic.
func (t *handlerTx) Conn() *pgx.Conn { panic(ErrNotYours) }

var errLargeObjects = errors.New("inbox: pgx's large objects would outlive the handler's transaction: " +
	"call lo_create, lo_put and the like as SQL")

// LargeObjects panics, for it would hand out the transaction unguarded.
func (t *handlerTx) LargeObjects() pgx.LargeObjects { panic(errLargeObjects) }

func (t *handlerTx) Exec(ctx context.Context, sql string, args ...any) (tag pgconn.CommandTag, err error) {
	if err := t.guard.look(t.m, sql, args); err != nil {
		return tag, err
	}
	return t.exec(ctx, sql, args...)
}

func (t *handlerTx) exec(ctx context.Context, sql string, args ...any) (tag pgconn.CommandTag, err error) {
	if err := t.enter(ctx); err != nil {
		return tag, err
	}
	defer func() { _ = t.guard.leave(err) }() // even if an argument panics
	return t.conn.Exec(ctx, sql, args...)
}

func (t *handlerTx) Query(ctx context.Context, sql string, args ...any) (_ pgx.Rows, err error) {
	if err := t.guard.look(t.m, sql, args); err != nil {
		return failed(err).Query()
	}
	if err := t.enter(ctx); err != nil {
		return failed(err).Query()
	}
	defer func() { _ = t.guard.leave(err) }()
	rows, err := t.conn.Query(ctx, sql, args...)
	return guardedRows{rows, t.guard, t.m}, err
}

func (t *handlerTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := t.guard.look(t.m, sql, args); err != nil {
		return failed(err).QueryRow()
	}
	if err := t.enter(ctx); err != nil {
		return failed(err).QueryRow()
	}
	defer func() { _ = t.guard.leave(nil) }() // the row tells
	return guardedRow{t.conn.QueryRow(ctx, sql, args...), t.guard, t.m}
}

func (t *handlerTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	for _, q := range b.QueuedQueries {
		if err := t.guard.look(t.m, q.SQL, q.Arguments); err != nil {
			return pgx.FailedBatchResults(b, err)
		}
	}
	if err := t.enter(ctx); err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	defer func() { _ = t.guard.leave(nil) }() // the results tell
	return guardedResults{t.conn.SendBatch(ctx, t.guard.guarded(t.m, b)), t.guard, t.m}
}

func (t *handlerTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string,
	src pgx.CopyFromSource) (n int64, err error) {
	if err := t.enter(ctx); err != nil {
		return 0, err
	}
	n, err = t.conn.CopyFrom(ctx, table, columns, src)
	return n, t.guard.leave(err)
}

func (t *handlerTx) Prepare(ctx context.Context, name, sql string) (desc *pgconn.StatementDescription, err error) {
	if err := t.guard.look(t.m, sql, nil); err != nil {
		return nil, err
	}
	if err := t.enter(ctx); err != nil {
		return nil, err
	}
	desc, err = t.conn.Prepare(ctx, name, sql)
	return desc, t.guard.leave(err)
}

// failed returns results of which each is err.
func failed(err error) pgx.BatchResults { return pgx.FailedBatchResults(&pgx.Batch{}, err) }
