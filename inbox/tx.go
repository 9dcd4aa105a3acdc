package inbox

import (
	"context"
	"sync"

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

// guard is what a transaction and its savepoints share.
type guard struct {
	mu    sync.Mutex
	ended bool  // the handler has returned
	err   error // the last error of a statement, for a handler that swallows it
}

// end refuses all further use.
func (g *guard) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
}

// usable returns pgx.ErrTxClosed to a goroutine that outlives its handler.
func (g *guard) usable() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return pgx.ErrTxClosed
	}
	return nil
}

func (g *guard) note(err error) error {
	if err != nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.err = err
	}
	return err
}

func (g *guard) lastError() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// Commit refuses, unless t is a savepoint.
func (t *handlerTx) Commit(ctx context.Context) error {
	if !t.savepoint {
		return ErrNotYours
	}
	if err := t.guard.usable(); err != nil {
		return err
	}
	return t.guard.note(t.Tx.Commit(ctx))
}

// Rollback refuses, unless t is a savepoint.
func (t *handlerTx) Rollback(ctx context.Context) error {
	if !t.savepoint {
		return ErrNotYours
	}
	if err := t.guard.usable(); err != nil {
		return err
	}
	return t.Tx.Rollback(ctx)
}

// Conn panics, since it has no error to return, and a nil would be found out
// later and farther away. The runner makes a failed attempt of the panic.
func (t *handlerTx) Conn() *pgx.Conn { panic(ErrNotYours) }

// Begin sets a savepoint, which is the handler's to release or roll back to.
func (t *handlerTx) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := t.guard.usable(); err != nil {
		return nil, err
	}
	sp, err := t.Tx.Begin(ctx)
	if err != nil {
		return nil, t.guard.note(err)
	}
	return &handlerTx{Tx: sp, guard: t.guard, savepoint: true}, nil
}

func (t *handlerTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := t.guard.usable(); err != nil {
		return pgconn.CommandTag{}, err
	}
	tag, err := t.Tx.Exec(ctx, sql, args...)
	return tag, t.guard.note(err)
}

func (t *handlerTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := t.guard.usable(); err != nil {
		return pgx.FailedBatchResults(&pgx.Batch{}, err).Query()
	}
	rows, err := t.Tx.Query(ctx, sql, args...)
	return notedRows{rows, t.guard}, t.guard.note(err)
}

func (t *handlerTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := t.guard.usable(); err != nil {
		return pgx.FailedBatchResults(&pgx.Batch{}, err).QueryRow()
	}
	return notedRow{t.Tx.QueryRow(ctx, sql, args...), t.guard}
}

func (t *handlerTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if err := t.guard.usable(); err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	return notedResults{t.Tx.SendBatch(ctx, b), t.guard}
}

func (t *handlerTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string,
	src pgx.CopyFromSource) (int64, error) {
	if err := t.guard.usable(); err != nil {
		return 0, err
	}
	n, err := t.Tx.CopyFrom(ctx, table, columns, src)
	return n, t.guard.note(err)
}

func (t *handlerTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := t.guard.usable(); err != nil {
		return nil, err
	}
	desc, err := t.Tx.Prepare(ctx, name, sql)
	return desc, t.guard.note(err)
}

// notedRow, notedRows and notedResults tell the guard what a statement says
// only when its results are read.
type notedRow struct {
	pgx.Row
	guard *guard
}

func (r notedRow) Scan(dest ...any) error {
	return r.guard.note(r.Row.Scan(dest...))
}

type notedRows struct {
	pgx.Rows
	guard *guard
}

func (r notedRows) Err() error {
	return r.guard.note(r.Rows.Err())
}

type notedResults struct {
	pgx.BatchResults
	guard *guard
}

func (r notedResults) Exec() (pgconn.CommandTag, error) {
	tag, err := r.BatchResults.Exec()
	return tag, r.guard.note(err)
}

func (r notedResults) Query() (pgx.Rows, error) {
	rows, err := r.BatchResults.Query()
	return notedRows{rows, r.guard}, r.guard.note(err)
}

func (r notedResults) QueryRow() pgx.Row {
	return notedRow{r.BatchResults.QueryRow(), r.guard}
}

func (r notedResults) Close() error {
	return r.guard.note(r.BatchResults.Close())
}
