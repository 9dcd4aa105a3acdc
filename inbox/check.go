package inbox

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/migrations"
)

// Check tells, before the first message, what would go wrong later: tables
// that are missing, older or newer than this release, a role that may not
// write them, a server that is read-only or commits asynchronously, a pool or
// a time limit that is too small. It implements consumer.Checker.
func (in *Inbox) Check(ctx context.Context, p consumer.Plan) error {
	if p.Transactions > int(in.pool.Config().MaxConns) {
		return fmt.Errorf("inbox: Config.MaxTransactions is %d, and the pool has only %d connections: "+
			"raise pool_max_conns, or lower MaxTransactions", p.Transactions, in.pool.Config().MaxConns)
	}
	if p.Transactions > 0 && p.Transactions < p.Workers {
		p.Warn(fmt.Sprintf("only %d of %d workers can be in a transaction at once: raise pool_max_conns or "+
			"Config.MaxTransactions, or lower Config.Workers", p.Transactions, p.Workers))
	}
	if err := migrations.Check(ctx, in.pool, in.cfg.Schema); err != nil {
		return in.checkFailed(err)
	}
	s, err := in.readSettings(ctx)
	if err != nil {
		return in.checkFailed(err)
	}
	if err := s.judge(in.cfg, p); err != nil {
		return err
	}
	s.warn(p)
	return in.rehearse(ctx, p.Subscriber)
}

// rehearse claims a message that does not exist, and rolls back: whatever else
// keeps a claim from working shows itself now.
func (in *Inbox) rehearse(ctx context.Context, subscriber string) error {
	s := &session{in: in, subscriber: subscriber}
	defer s.Close(ctx)
	nobody := &consumer.Message{ID: "rehearsal " + rand.Text()}
	c := newClaim([]*consumer.Message{nobody})
	if err := s.claim(ctx, c); err != nil {
		return in.checkFailed(err)
	}
	if !c.mine[0] {
		return errors.New("inbox: an insert into processed_messages inserts nothing: is there a trigger?")
	}
	return nil
}

// settings is what a server says of itself.
type settings struct {
	version            int
	encoding           string
	syncCommit         string
	standbys           bool // synchronous ones are named
	readOnly, recovery bool
	insert, read       bool
	failures           bool // may be written
	remove             bool // processed_messages
	pooler             bool // stands between us and the server
	prepares           bool // pgx keeps prepared statements

	// Limits of the server; zero is none.
	idleInTransaction, transactionMax, statementMax time.Duration
}

func (in *Inbox) readSettings(ctx context.Context) (settings, error) {
	table := pgx.Identifier{in.cfg.Schema, "processed_messages"}.Sanitize()
	var s settings
	conn, err := in.pool.Acquire(ctx)
	if err != nil {
		return s, err
	}
	defer conn.Release()
	var pid uint32
	err = conn.QueryRow(ctx, `select pg_backend_pid(), current_setting('server_version_num')::int,
	current_setting('server_encoding'),
	current_setting('synchronous_commit'),
	current_setting('synchronous_standby_names') <> '',
	current_setting('default_transaction_read_only')::bool,
	pg_is_in_recovery(),
	has_table_privilege($1::text, 'insert'),
	has_table_privilege($1::text, 'select'),
	has_table_privilege($2::text, 'insert') and has_table_privilege($2::text, 'select')
		and has_table_privilege($2::text, 'update') and has_table_privilege($2::text, 'delete')
		and has_table_privilege($3::text, 'insert') and has_table_privilege($3::text, 'select')
		and has_table_privilege($3::text, 'update') and has_table_privilege($3::text, 'delete'),
	has_table_privilege($1::text, 'delete'),
	current_setting('idle_in_transaction_session_timeout')::interval,
	coalesce(current_setting('transaction_timeout', true), '0')::interval,
	current_setting('statement_timeout')::interval`,
		pgx.QueryExecModeExec, table,
		pgx.Identifier{in.cfg.Schema, "failed_messages"}.Sanitize(),
		pgx.Identifier{in.cfg.Schema, "begun_attempts"}.Sanitize()).
		Scan(&pid, &s.version, &s.encoding, &s.syncCommit, &s.standbys, &s.readOnly, &s.recovery, &s.insert, &s.read, &s.failures, &s.remove,
			&s.idleInTransaction, &s.transactionMax, &s.statementMax)
	s.pooler = pid != conn.Conn().PgConn().PID()
	s.prepares = conn.Conn().Config().DefaultQueryExecMode == pgx.QueryExecModeCacheStatement
	return s, err
}

// minServerVersion is the first with pg_current_xact_id.
const minServerVersion = 130000

func (s settings) judge(cfg Config, p consumer.Plan) error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf("inbox: "+format, args...)) }
	if s.version < minServerVersion {
		wrong("the server is PostgreSQL %d; 13 is the oldest that works", s.version/10000)
	}
	if s.encoding != "UTF8" {
		wrong("the database's encoding is %s, and message ids are UTF-8: use a database with encoding UTF8", s.encoding)
	}
	if s.recovery || s.readOnly {
		// A failover may be under way, so this may pass.
		wrong("%w: the server is read-only: connect to the primary (target_session_attrs=read-write)", consumer.ErrOutage)
	}
	s.judgeRights(wrong, cfg, p)
	if s.syncCommit == "off" && !cfg.AllowAsyncCommit {
		wrong("synchronous_commit is off, so a crash of the server loses transactions whose messages were acknowledged: " +
			"turn it on for this role (alter role … set synchronous_commit = on), or set Config.AllowAsyncCommit")
	}
	tooShort := func(name string, limit time.Duration) {
		if limit > 0 && p.HandlerTimeout >= limit {
			wrong("the handler may take %v (consumer.Config.HandlerTimeout), and the server gives a transaction only %v "+
				"(%s): lower the first or raise the second", p.HandlerTimeout, limit, name)
		}
	}
	tooShort("idle_in_transaction_session_timeout", s.idleInTransaction)
	tooShort("transaction_timeout", s.transactionMax)
	if s.statementMax > 0 && cfg.LockTimeout >= s.statementMax {
		wrong("LockTimeout is %v, and the server ends statements after %v (statement_timeout): lower the first or raise the second, "+
			"since a claim that waits for a rival would look like a failure", cfg.LockTimeout, s.statementMax)
	}
	return errors.Join(errs...)
}

func (s settings) judgeRights(wrong func(format string, args ...any), cfg Config, p consumer.Plan) {
	if !s.insert || !s.read {
		wrong("the role may not read and write processed_messages: grant select, insert on %s.processed_messages to it",
			pgx.Identifier{cfg.Schema}.Sanitize())
	}
	if !s.failures {
		wrong("the role may not set messages aside: grant select, insert, update, delete on %[1]s.failed_messages, %[1]s.begun_attempts to it",
			pgx.Identifier{cfg.Schema}.Sanitize())
	}
	if p.Discards && !s.remove {
		wrong("the role may not let a message go to the dead letters (consumer.Config.DeadLetter, with RetryLater): grant delete on %s.processed_messages to it",
			pgx.Identifier{cfg.Schema}.Sanitize())
	}
}

// warn reports what may be meant.
func (s settings) warn(p consumer.Plan) {
	if s.syncCommit == "local" && s.standbys {
		p.Warn("synchronous_commit is local although synchronous standbys are named: " +
			"a failover loses transactions whose messages were acknowledged")
	}
	if s.pooler && s.prepares {
		p.Warn("a pooler stands in front of the server, and pgx keeps prepared statements: if it pools transactions " +
			"(PgBouncer before 1.21, or with max_prepared_statements = 0), set default_query_exec_mode=exec")
	}
}

// checkFailed tells what can pass, such as a server that is starting, from
// what cannot, such as a wrong password.
func (in *Inbox) checkFailed(err error) error {
	var pgErr *pgconn.PgError
	switch {
	case errors.Is(err, migrations.ErrOutdated), errors.Is(err, migrations.ErrNewer):
		return err
	case errors.As(err, &pgErr) && pgErr.Code == insufficientPrivilege:
		return fmt.Errorf("inbox: %w: grant usage on schema %[2]s, select on its schema_version, select, insert on its processed_messages, "+
			"and select, insert, update, delete on its failed_messages and begun_attempts, to this role", pgErr, pgx.Identifier{in.cfg.Schema}.Sanitize())
	case errors.As(err, &pgErr) && !isOutage(pgErr) && !isContention(pgErr):
		return fmt.Errorf("inbox: %w", pgErr) // without the ErrOutage of a claim's error
	case errors.Is(err, consumer.ErrOutage):
		return err
	}
	return fmt.Errorf("inbox: %w: %w", consumer.ErrOutage, err)
}
