package migrations

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// The codes of the server's errors whose cure is known.
const (
	codeNoPrivilege    = "42501"
	codeNoSchema       = "3F000"
	codeLockTimeout    = "55P03"
	codeDuplicateTable = "42P07"
	codeReadOnly       = "25006"
)

// explainRead names the cure for an error of reading the version.
func explainRead(err error, schema string) error {
	if codeOf(err) == codeNoPrivilege {
		return fmt.Errorf("migrations: the version of schema %q is hidden from this role: %s: %w",
			schema, grantRead(schema), err)
	}
	return fmt.Errorf("migrations: read the version of schema %q: %w", schema, err)
}

func grantRead(schema string) string {
	quoted := pgx.Identifier{schema}.Sanitize()
	return fmt.Sprintf("grant usage on schema %s and select on %s.schema_version to it", quoted, quoted)
}

// explainApply names the cure for an error of Apply.
func explainApply(ctx context.Context, err error, cfg Config, conn *pgx.ConnConfig) error {
	if errors.Is(err, ErrNewer) {
		return err
	}
	wrap := func(cure string) error {
		return fmt.Errorf("migrations: apply to schema %q: %s: %w", cfg.Schema, cure, err)
	}
	database, role := pgx.Identifier{conn.Database}.Sanitize(), pgx.Identifier{conn.User}.Sanitize()
	switch codeOf(err) {
	case codeNoPrivilege, codeNoSchema:
		return wrap(fmt.Sprintf("the role %s may not create or read it: run Apply or a migration tool once as the owner, "+
			"or grant create on database %s to %s; once the tables exist, %s",
			role, database, role, grantRead(cfg.Schema)))
	case codeLockTimeout:
		return wrap(fmt.Sprintf("another session held a lock for longer than Config.LockTimeout, %s: see who in "+
			"pg_locks and pg_stat_activity, end that session or wait for it, then call Apply again", cfg.LockTimeout))
	case codeDuplicateTable:
		return wrap("a table of this name exists, but not from these migrations: move it away or choose another Config.Schema")
	case codeReadOnly:
		return wrap("the server takes no writes: connect to the primary")
	}
	if ctx.Err() != nil {
		return fmt.Errorf("migrations: apply to schema %q: %w (%w)", cfg.Schema, context.Cause(ctx), err)
	}
	return fmt.Errorf("migrations: apply to schema %q: %w", cfg.Schema, err)
}

// codeOf returns the SQLSTATE of a server's error, or "".
func codeOf(err error) string {
	var server *pgconn.PgError
	if errors.As(err, &server) {
		return server.Code
	}
	return ""
}
