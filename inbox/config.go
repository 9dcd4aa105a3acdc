package inbox

import (
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ackafter/ackafter/migrations"
)

// Config configures an Inbox. The zero value has safe defaults.
type Config struct {
	// Schema holds the tables; see package migrations. Zero means
	// migrations.DefaultSchema. All SQL names it, so search_path is yours.
	Schema string

	// Isolation is that of the handler's transaction. Zero means
	// pgx.ReadCommitted, whatever the server's default is. Under
	// pgx.RepeatableRead and pgx.Serializable a rival's commit is contention
	// (40001) and is tried again.
	Isolation pgx.TxIsoLevel

	// LockTimeout limits each wait for a lock in the transaction: the claim's
	// for a rival with the same message, and the handler's own. Running into
	// it is contention and is tried again. Several messages in one transaction
	// wait for 100 ms at most, and are tried again in smaller batches. Zero means
	// 5 s; it is rounded up to milliseconds.
	LockTimeout time.Duration

	// ClaimTimeout limits what comes before the handler: a connection from
	// the pool, and the round trip that begins the transaction and claims the
	// messages. It must exceed LockTimeout. Zero means 15 s, and at least
	// twice LockTimeout.
	ClaimTimeout time.Duration

	// CommitTimeout limits the commit, and likewise a rollback. A shutdown
	// does not shorten it. When it ends the outcome is unknown, and the
	// messages are claimed again to learn it. Zero means 10 s.
	CommitTimeout time.Duration

	// AllowAsyncCommit lets a worker start although synchronous_commit is
	// off. A crash of the server then loses transactions whose messages were
	// acknowledged.
	AllowAsyncCommit bool
}

func (c Config) withDefaults() Config {
	if c.Schema == "" {
		c.Schema = migrations.DefaultSchema
	}
	if c.Isolation == "" {
		c.Isolation = pgx.ReadCommitted
	}
	if c.LockTimeout == 0 {
		c.LockTimeout = 5 * time.Second
	}
	if c.ClaimTimeout == 0 {
		c.ClaimTimeout = max(15*time.Second, 2*c.LockTimeout)
	}
	if c.CommitTimeout == 0 {
		c.CommitTimeout = 10 * time.Second
	}
	return c
}

func (c Config) validate(pool *pgxpool.Pool) error {
	var errs []error
	if pool == nil {
		errs = append(errs, errors.New("inbox: the pool is nil"))
	}
	if err := migrations.ValidSchema(c.Schema); err != nil {
		errs = append(errs, fmt.Errorf("inbox.Config.Schema: %w", err))
	}
	switch c.Isolation {
	case pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable:
	default:
		errs = append(errs, fmt.Errorf("inbox.Config.Isolation: %q is none of PostgreSQL's", c.Isolation))
	}
	if c.LockTimeout < 0 {
		errs = append(errs, fmt.Errorf("inbox.Config.LockTimeout: must not be negative, is %v", c.LockTimeout))
	}
	if c.ClaimTimeout <= c.LockTimeout {
		errs = append(errs, fmt.Errorf("inbox.Config.ClaimTimeout: must exceed LockTimeout (%v), is %v", c.LockTimeout, c.ClaimTimeout))
	}
	if c.CommitTimeout < 0 {
		errs = append(errs, fmt.Errorf("inbox.Config.CommitTimeout: must not be negative, is %v", c.CommitTimeout))
	}
	return errors.Join(errs...)
}
