package inbox

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ackafter/ackafter/consumer"
)

// guardedRow, guardedRows and guardedResults read from the connection, so each
// reading passes the guard, which remembers what it says. m is as in handlerTx.
type guardedRow struct {
	row   pgx.Row
	guard *guard
	m     *consumer.Message
}

func (r guardedRow) Scan(dest ...any) error {
	return r.guard.do(r.m, func() error { return r.row.Scan(dest...) })
}

type guardedRows struct {
	pgx.Rows
	guard *guard
	m     *consumer.Message
}

func (r guardedRows) Conn() *pgx.Conn { panic(ErrNotYours) }

func (r guardedRows) Next() bool {
	if r.guard.enter(r.m) != nil {
		return false // Err says why
	}
	more := r.Rows.Next()
	if more {
		_ = r.guard.leave(nil)
	} else {
		_ = r.guard.leave(r.Rows.Err())
	}
	return more
}

func (r guardedRows) Close() {
	_ = r.guard.do(r.m, func() error {
		r.Rows.Close()
		return r.Rows.Err()
	})
}

func (r guardedRows) Err() error {
	return r.guard.do(r.m, r.Rows.Err)
}

type guardedResults struct {
	pgx.BatchResults
	guard *guard
	m     *consumer.Message
}

// Tx returns nil: the transaction of pgx.Batch.BeginTx would be unguarded.
func (r guardedResults) Tx() pgx.Tx { return nil }

func (r guardedResults) Exec() (tag pgconn.CommandTag, err error) {
	err = r.guard.do(r.m, func() error {
		tag, err = r.BatchResults.Exec()
		return err
	})
	return tag, err
}

func (r guardedResults) Query() (pgx.Rows, error) {
	if err := r.guard.enter(r.m); err != nil {
		return failed(err).Query()
	}
	rows, err := r.BatchResults.Query()
	return guardedRows{rows, r.guard, r.m}, r.guard.leave(err)
}

func (r guardedResults) QueryRow() pgx.Row {
	if err := r.guard.enter(r.m); err != nil {
		return failed(err).QueryRow()
	}
	row := r.BatchResults.QueryRow()
	_ = r.guard.leave(nil)
	return guardedRow{row, r.guard, r.m}
}

func (r guardedResults) Close() error { return r.guard.do(r.m, r.BatchResults.Close) }
