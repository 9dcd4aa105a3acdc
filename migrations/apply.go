package migrations

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Config says where and how [Apply] works. The zero Config is ready to use.
type Config struct {
	// Schema holds the tables. Empty means DefaultSchema.
	Schema string

	// LockTimeout limits each wait for a lock that another session holds, be it a process that is migrating
	// or someone who has locked a table. Zero means 10 seconds; negative is an error.
	LockTimeout time.Duration

	// Timeout limits the whole of Apply, with the wait for a connection from the pool.
	// Zero means 5 minutes; negative is an error.
	Timeout time.Duration
}

func (c Config) withDefaults() (Config, error) {
	schema, err := resolveSchema(c.Schema)
	if c.LockTimeout < 0 {
		err = errors.Join(err, fmt.Errorf("migrations: Config.LockTimeout is %s, must not be negative", c.LockTimeout))
	}
	if c.Timeout < 0 {
		err = errors.Join(err, fmt.Errorf("migrations: Config.Timeout is %s, must not be negative", c.Timeout))
	}
	c.Schema = schema
	if c.LockTimeout == 0 {
		c.LockTimeout = 10 * time.Second
	}
	if c.Timeout == 0 {
		c.Timeout = 5 * time.Minute
	}
	return c, err
}

// Apply brings the tables to [Version], and does nothing when they are there already, whichever tool ran the
// migrations. Call it at the start of every worker: however many start at once, each migration runs once.
//
// Each migration is one transaction, so a failed one leaves nothing, and Apply can be called again. Apply keeps no
// session state and no prepared statements, so it works through PgBouncer in transaction mode.
//
// Creating needs the right to create in the database, or in the schema where that exists; finding that there is
// nothing to do needs usage on the schema and select on its table schema_version. When the tables are newer than this
// release knows, the error is [ErrNewer].
func Apply(ctx context.Context, pool *pgxpool.Pool, cfg Config) error {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return err
	}
	all, err := load(cfg.Schema)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, cfg.Timeout,
		fmt.Errorf("not done within Config.Timeout, %s: %w", cfg.Timeout, context.DeadlineExceeded))
	defer cancel()
	return applyAll(ctx, pool, cfg, all)
}

// applyAll looks before it locks, so that a database that is up to date costs no wait. Looking takes a transaction
// of its own: behind the lock, the catalog must be seen as it is then (see hasVersion).
func applyAll(ctx context.Context, pool *pgxpool.Pool, cfg Config, all []migration) error {
	for {
		var next *migration
		err := inTx(ctx, pool, cfg, func(tx pgx.Tx) (err error) {
			next, err = pending(ctx, tx, cfg.Schema, all)
			return err
		})
		if err == nil && next == nil {
			return nil
		}
		if err == nil {
			err = inTx(ctx, pool, cfg, func(tx pgx.Tx) error { return step(ctx, tx, cfg.Schema, all) })
		}
		if err != nil {
			return explainApply(ctx, err, cfg, pool.Config().ConnConfig)
		}
	}
}

// step waits for its turn and runs the next migration, if the one who had the turn before has left any.
func step(ctx context.Context, tx pgx.Tx, schema string, all []migration) error {
	if _, err := tx.Exec(ctx, fmt.Sprintf("select pg_advisory_xact_lock(%d)", lockKey(schema))); err != nil {
		return fmt.Errorf("wait for another migration: %w", err)
	}
	next, err := pending(ctx, tx, schema, all)
	if err != nil || next == nil {
		return err
	}
	// Without arguments pgx uses the simple protocol, which takes many statements at once.
	if _, err := tx.Exec(ctx, next.up); err != nil {
		return fmt.Errorf("run %s: %w", next.name, err)
	}
	return nil
}

// inTx overrides what the defaults of a role or a pooler could spoil: repeatable read would hide what a rival
// committed while we waited, and a search_path lend its schema to a name that a file forgot to qualify.
func inTx(ctx context.Context, pool *pgxpool.Pool, cfg Config, do func(pgx.Tx) error) error {
	options := pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}
	return pgx.BeginTxFunc(ctx, pool, options, func(tx pgx.Tx) error {
		settings := fmt.Sprintf("set local lock_timeout = %d; set local search_path = pg_catalog, pg_temp",
			max(1, cfg.LockTimeout.Milliseconds())) // 0 would mean no limit
		if _, err := tx.Exec(ctx, settings); err != nil {
			return err
		}
		return do(tx)
	})
}

// pending returns the migration to run next, or nil.
func pending(ctx context.Context, db Queryer, schema string, all []migration) (*migration, error) {
	have, err := current(ctx, db, schema)
	if err != nil {
		return nil, fmt.Errorf("read the version: %w", err)
	}
	for i := range all {
		if all[i].version > have {
			return &all[i], nil
		}
	}
	return nil, refuseNewer(schema, have)
}

// lockKey makes one advisory lock for each schema. Two schemas that share a key merely wait for each other.
func lockKey(schema string) int64 {
	h := fnv.New64a()
	h.Write([]byte("github.com/ackafter/ackafter/migrations:" + schema)) // never fails
	return int64(h.Sum64())
}
