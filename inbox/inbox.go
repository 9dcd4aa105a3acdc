package inbox

import (
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ackafter/ackafter/consumer"
)

// Inbox remembers in PostgreSQL what each subscriber has processed. It is a
// consumer.Inbox[pgx.Tx]. It is safe for concurrent use, and several runners
// may share one.
type Inbox struct {
	pool     *pgxpool.Pool
	cfg      Config
	sql      statements
	failed   failureStatements
	attempts attemptStatements
	order    orderStatements
	sweeps   sweeps
	owed     owed
	prepares bool  // whether statements prepared on a connection stay there
	invalid  error // what Validate returns
}

var (
	_ consumer.Inbox[pgx.Tx]        = (*Inbox)(nil)
	_ consumer.SessionInbox[pgx.Tx] = (*Inbox)(nil)
	_ consumer.OrderInbox[pgx.Tx]   = (*Inbox)(nil)
	_ consumer.CrashInbox           = (*Inbox)(nil)
	_ consumer.Validator            = (*Inbox)(nil)
	_ consumer.Checker              = (*Inbox)(nil)
	_ consumer.TransactionLimiter   = (*Inbox)(nil)
)

// New returns an inbox on pool with the defaults of Config. The pool stays
// yours to close, after the runners have returned. Its tables come from
// package migrations.
func New(pool *pgxpool.Pool) *Inbox {
	in, err := NewWithConfig(pool, Config{})
	if err != nil {
		return &Inbox{invalid: err}
	}
	return in
}

// NewWithConfig is New with a Config. Its error holds every mistake in cfg,
// each naming its field.
func NewWithConfig(pool *pgxpool.Pool, cfg Config) (*Inbox, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(pool); err != nil {
		return nil, err
	}
	return &Inbox{pool: pool, cfg: cfg, sql: newStatements(cfg), failed: newFailureStatements(cfg),
		attempts: newAttemptStatements(cfg), order: newOrderStatements(cfg), prepares: prepares(pool.Config().ConnConfig)}, nil
}

// Validate returns an error when New got no pool, and for an Inbox that New did
// not make.
func (in *Inbox) Validate() error {
	if in.pool == nil && in.invalid == nil {
		return errors.New("inbox: make it with New or NewWithConfig")
	}
	return in.invalid
}

// MaxTransactions returns how many transactions the pool can carry: one less
// than its connections, so that a handler which uses the pool beside its
// transaction does not wait for itself, and at least one.
func (in *Inbox) MaxTransactions() int {
	return max(1, int(in.pool.Config().MaxConns)-1)
}
