package failures

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ackafter/ackafter/migrations"
)

// Config configures a Store. The zero value is ready to use.
type Config struct {
	// Schema holds the tables; see package migrations. Zero means
	// migrations.DefaultSchema.
	Schema string

	// LockTimeout limits each wait for a lock that somebody else holds, such
	// as a worker whose handler is running. Then the call returns ErrBusy.
	// Zero means 1 s; it is rounded up to milliseconds.
	LockTimeout time.Duration
}

// Store reads and changes what is set aside in one schema, for all subscribers.
// It is safe for concurrent use, also with other processes and with workers.
// Make it with New.
type Store struct {
	pool          *pgxpool.Pool
	cfg           Config
	failed, letGo string // the tables
	begin         string // what each transaction begins with
}

// New returns a store on pool, which stays yours to close. It asks no database:
// that the tables are there is what migrations.Check tells, or the first call.
// Its error holds every mistake in cfg, each naming its field.
func New(pool *pgxpool.Pool, cfg Config) (*Store, error) {
	var errs []error
	if pool == nil {
		errs = append(errs, errors.New("failures: the pool is nil"))
	}
	if err := migrations.ValidSchema(cfg.Schema); err != nil {
		errs = append(errs, fmt.Errorf("failures.Config.Schema: %w", err))
	}
	if cfg.LockTimeout < 0 {
		errs = append(errs, fmt.Errorf("failures.Config.LockTimeout: must not be negative, is %v", cfg.LockTimeout))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if cfg.Schema == "" {
		cfg.Schema = migrations.DefaultSchema
	}
	if cfg.LockTimeout == 0 {
		cfg.LockTimeout = time.Second
	}
	milliseconds := (cfg.LockTimeout + time.Millisecond - 1) / time.Millisecond
	return &Store{
		pool:   pool,
		cfg:    cfg,
		failed: pgx.Identifier{cfg.Schema, "failed_messages"}.Sanitize(),
		letGo:  pgx.Identifier{cfg.Schema, "let_go_messages"}.Sanitize(),
		begin:  fmt.Sprintf("set local lock_timeout = %d; set local search_path = pg_catalog, pg_temp", milliseconds),
	}, nil
}

// inTx runs do in a transaction of its own. Under READ COMMITTED, whatever the
// server's default is, a statement that waited for a worker sees what that did.
func (s *Store) inTx(ctx context.Context, mode pgx.TxAccessMode, do func(pgx.Tx) error) error {
	options := pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: mode}
	err := pgx.BeginTxFunc(ctx, s.pool, options, func(tx pgx.Tx) error {
		// Without arguments pgx uses the simple protocol, which takes many statements at once.
		if _, err := tx.Exec(ctx, s.begin); err != nil {
			return err
		}
		return do(tx)
	})
	return s.explain(ctx, err)
}

// read runs one query in a transaction that writes nothing, so that a standby
// serves it, too.
func read[T any](ctx context.Context, s *Store, q *query, scan pgx.RowToFunc[T]) (all []T, err error) {
	err = s.inTx(ctx, pgx.ReadOnly, func(tx pgx.Tx) error {
		all, err = collect(ctx, tx, q, scan)
		return err
	})
	return all, err
}

func collect[T any](ctx context.Context, tx pgx.Tx, q *query, scan pgx.RowToFunc[T]) ([]T, error) {
	rows, err := tx.Query(ctx, q.sql, q.params()...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scan)
}
