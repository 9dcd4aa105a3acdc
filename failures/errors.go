package failures

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// What can be told from other errors with errors.Is.
var (
	// ErrNotFound says that no such message is set aside: it never was, or it
	// has been processed or let go meanwhile.
	ErrNotFound = errors.New("failures: no such message is set aside")
	// ErrBusy says that somebody else held a lock for Config.LockTimeout, and
	// that the transaction which waited for it changed nothing. As a rule that
	// is a worker whose handler is running for the message: what comes of it is
	// known when it has ended. Of List, Count, Get, Export and RetryAll it says
	// that the whole table is locked, as by a migration.
	ErrBusy = errors.New("failures: the message is being handled, or somebody else holds a lock")
	// ErrCursor says that a cursor is none that this package made.
	ErrCursor = errors.New("failures: not a cursor of this package")
)

// SQLSTATE codes, from appendix A of PostgreSQL's documentation.
const (
	lockNotAvailable      = "55P03"
	undefinedTable        = "42P01"
	undefinedColumn       = "42703"
	invalidSchema         = "3F000"
	insufficientPrivilege = "42501"
	readOnlyTransaction   = "25006"
)

// explain names the cause of an error, and what would help.
func (s *Store) explain(ctx context.Context, err error) error {
	if err == nil || errors.Is(err, ErrNotFound) {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("failures: %w: %w", context.Cause(ctx), err)
	}
	var server *pgconn.PgError
	if !errors.As(err, &server) {
		return fmt.Errorf("failures: %w", err)
	}
	schema := pgx.Identifier{s.cfg.Schema}.Sanitize()
	switch server.Code {
	case lockNotAvailable:
		return fmt.Errorf("%w: waited %v for it (Config.LockTimeout); try again when the handler has ended: %w",
			ErrBusy, s.cfg.LockTimeout, err)
	case undefinedTable, undefinedColumn, invalidSchema:
		return fmt.Errorf("failures: the tables in schema %s are missing or older than this release: "+
			"run migrations.Apply or your migration tool, or set Config.Schema: %w", schema, err)
	case insufficientPrivilege:
		return fmt.Errorf("failures: grant usage on schema %[1]s, select, update, delete on %[2]s, "+
			"and select, insert on %[3]s to this role; to look on, usage and select are enough: %[4]w",
			schema, s.failed, s.letGo, err)
	case readOnlyTransaction:
		return fmt.Errorf("failures: the server is read-only: connect to the primary (target_session_attrs=read-write): %w", err)
	}
	return fmt.Errorf("failures: %w", err)
}

func notFound(subscriber, id string) error {
	return fmt.Errorf("%w: subscriber %.100q, message %.100q", ErrNotFound, subscriber, id)
}

// storable tells whether PostgreSQL's text can hold s.
func storable(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }
