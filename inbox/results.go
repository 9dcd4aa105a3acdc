package inbox

import (
	"slices"

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
	return r.guard.do(r.m, func() error { return r.row.Scan(r.guard.scanned(r.m, dest)...) })
}

// scanned keeps a pgx.RowScanner from getting rows that hand out the connection.
func (g *guard) scanned(m *consumer.Message, dest []any) []any {
	if len(dest) == 1 {
		if s, ok := dest[0].(pgx.RowScanner); ok {
			return []any{guardedScanner{s, g, m}}
		}
	}
	return dest
}

type guardedScanner struct {
	pgx.RowScanner
	guard *guard
	m     *consumer.Message
}

func (s guardedScanner) ScanRow(rows pgx.Rows) error {
	return s.RowScanner.ScanRow(guardedRows{rows, s.guard, s.m})
}

type guardedRows struct {
	pgx.Rows
	guard *guard
	m     *consumer.Message
}

func (r guardedRows) Conn() *pgx.Conn { panic(ErrNotYours) }

func (r guardedRows) Scan(dest ...any) error { return r.Rows.Scan(r.guard.scanned(r.m, dest)...) }

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

// guarded is b with functions that get guarded results.
func (g *guard) guarded(m *consumer.Message, b *pgx.Batch) *pgx.Batch {
	if !slices.ContainsFunc(b.QueuedQueries, func(q *pgx.QueuedQuery) bool { return q.Fn != nil }) {
		return b
	}
	queries := make([]*pgx.QueuedQuery, len(b.QueuedQueries))
	for i, q := range b.QueuedQueries {
		own := *q
		if q.Fn != nil {
			own.Fn = func(results pgx.BatchResults) error { return q.Fn(guardedResults{results, g, m}) }
		}
		queries[i] = &own
	}
	guarded := *b
	guarded.QueuedQueries = queries
	return &guarded
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
