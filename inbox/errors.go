package inbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ackafter/ackafter/consumer"
)

// What a handler did wrong to its transaction. The attempt is rolled back and
// counts as failed.
var (
	// ErrTransactionEnded: the handler's SQL was COMMIT, ROLLBACK or the like. A
	// statement that begins in this way is not sent. What is hidden behind
	// another one is noticed afterwards, and stays committed then; nothing is
	// sent after it where it has left no transaction.
	ErrTransactionEnded = errors.New("inbox: the handler ended its transaction by SQL; the runner commits it, on nil")
	// ErrSQLFailed: a statement failed, and the handler returned nil all the
	// same. PostgreSQL commits nothing then. A statement that may fail belongs
	// into a savepoint: pgx.Tx.Begin.
	ErrSQLFailed = errors.New("inbox: the handler returned nil although a statement had failed, which aborts the transaction")
	// ErrTransactionBusy: the handler returned while rows of a query were
	// unread, or while a goroutine of its was still using the transaction.
	ErrTransactionBusy = errors.New("inbox: the handler returned while its transaction was in use: " +
		"close the rows of each query, and wait for each goroutine")
	// ErrNotYours is what Commit, Rollback and Conn of the handler's
	// transaction refuse with; Conn panics with it.
	ErrNotYours = errors.New("inbox: the transaction is not the handler's to end: return nil to commit it, or an error to roll it back")
)

var errLost = errors.New("the connection was lost")

var errNotRemoved = errors.New("inbox: nothing was removed from failed_messages, so that the message would be processed once more: " +
	"is there a trigger or a policy?")

// SQLSTATE codes, from appendix A of PostgreSQL's documentation.
const (
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
	lockNotAvailable     = "55P03"
	readOnlyTransaction  = "25006" // after a failover, the old primary says this
	idleInTransaction    = "25P03" // idle_in_transaction_session_timeout
	transactionTimeout   = "25P04"

	insufficientPrivilege = "42501"
	configurationLimit    = "53400" // temp_file_limit, for one
)

func isContention(err *pgconn.PgError) bool {
	switch err.Code {
	case serializationFailure, deadlockDetected, lockNotAvailable:
		return true
	}
	return false
}

// isOutage tells whether the server refuses to work: connection exceptions,
// insufficient resources, operator intervention other than a cancelled
// statement, and internal trouble of the disk.
func isOutage(err *pgconn.PgError) bool {
	class := err.Code[:min(2, len(err.Code))]
	switch class {
	case "08", "53", "58":
		return true
	case "57":
		return strings.HasPrefix(err.Code, "57P")
	}
	return err.Code == readOnlyTransaction
}

// isHandlersLimit tells, for a connection that goes on, an outage from what only
// the handler's own statement ran into: another server, through a foreign table
// say, or a limit like temp_file_limit.
func isHandlersLimit(err *pgconn.PgError) bool {
	return strings.HasPrefix(err.Code, "08") || err.Code == configurationLimit
}

// isSlowHandler tells whether the server ended the connection because the
// handler took too long.
func isSlowHandler(err *pgconn.PgError) bool {
	return err.Code == idleInTransaction || err.Code == transactionTimeout
}

// claimFailed explains an error before the handler. It is never the message's
// fault, whose id was checked, so whatever it is, the runner has to wait. Then
// the connection is not kept: what keeps it from working may be its own, such as
// a role that a handler set, or a server that is no longer the primary.
func (s *session) claimFailed(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	var pgErr *pgconn.PgError
	contention := errors.As(err, &pgErr) && isContention(pgErr)
	if !contention {
		s.discard(context.WithoutCancel(ctx))
	}
	if contention {
		return fmt.Errorf("inbox: claim: %w: %w", consumer.ErrContention, err)
	}
	return fmt.Errorf("inbox: claim: %w: %w", consumer.ErrOutage, err)
}

// noConnection explains why the pool gave none.
func (in *Inbox) noConnection(err error) error {
	s := in.pool.Stat()
	if errors.Is(err, context.DeadlineExceeded) && s.AcquiredConns() == s.MaxConns() {
		return fmt.Errorf("inbox: %w: all %d connections of the pool were in use for %v (Config.ClaimTimeout); "+
			"make the pool larger, or let handlers use their tx only: %w",
			consumer.ErrOutage, s.MaxConns(), in.cfg.ClaimTimeout, err)
	}
	return fmt.Errorf("inbox: connect: %w: %w", consumer.ErrOutage, err)
}

// blame tells whose fault the handler's error is: its own unless the database
// says otherwise through this very connection. That an error merely looks like
// a network's proves nothing; the handler may talk to others.
//
// last is the last error of the transaction's statements, which err may hide.
func (s *session) blame(ctx context.Context, err, last error) error {
	var pgErr *pgconn.PgError
	isPgErr := errors.As(err, &pgErr)
	switch {
	case isPgErr && isSlowHandler(pgErr):
		return err
	case s.pg().IsClosed():
		s.release() // reachable may need its place in the pool
		if (isContextError(err) || isContextError(last)) && s.in.reachable(ctx) {
			return err // pgx closes a connection whose context ends
		}
		return fmt.Errorf("inbox: connection lost: %w: %w", consumer.ErrOutage, err)
	case !isPgErr || s.pg().TxStatus() == 'T' && !isSame(pgErr, last):
		return err // the statement may have been another database's
	case isContention(pgErr):
		return fmt.Errorf("%w: %w", consumer.ErrContention, err)
	case isOutage(pgErr) && !isHandlersLimit(pgErr):
		return fmt.Errorf("%w: %w", consumer.ErrOutage, err)
	}
	return err
}

// inspect looks at what a handler that returned nil left behind. lastErr is
// the last error that its transaction returned, if any. Whether one transaction
// was put in the place of another, only the server can tell: see
// statements.unchanged.
func (s *session) inspect(ctx context.Context, lastErr error) error {
	if err := left(0, s.pg(), lastErr); err != nil {
		return s.blame(ctx, err, lastErr)
	}
	return nil
}

// isSame tells whether pgErr is what a statement of this transaction has returned,
// which a savepoint has survived.
func isSame(pgErr *pgconn.PgError, last error) bool {
	var own *pgconn.PgError
	return errors.As(last, &own) && own == pgErr
}

func isContextError(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// reachable asks the database for a sign of life, to tell a handler that was
// too slow from a network that was cut under it.
func (in *Inbox) reachable(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reachableTimeout)
	defer cancel()
	return in.pool.Ping(ctx) == nil
}

// reachableTimeout is short: a network that answers only later was cut before.
const reachableTimeout = time.Second
