package migrations

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Version is the version of the tables that this release of the library works with.
const Version = 2

// What [Check] and [Apply] find wrong with a version; test for them with errors.Is.
var (
	// ErrOutdated: the database lacks migrations that this release needs.
	ErrOutdated = errors.New("the tables are missing, or older than this release of ackafter needs")
	// ErrNewer: the database has migrations that this release does not know.
	ErrNewer = errors.New("the tables are newer than this release of ackafter knows")
)

// Queryer is what reading the version needs: a *pgxpool.Pool, a *pgx.Conn or a pgx.Tx.
type Queryer interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Current returns the version of the tables in schema, or 0 when there are none.
// The empty schema means [DefaultSchema]. It changes nothing, and it is as safe for concurrent use as db is.
//
// The wait for an answer is limited by ctx only.
func Current(ctx context.Context, db Queryer, schema string) (int, error) {
	schema, err := resolveSchema(schema)
	if err != nil {
		return 0, err
	}
	version, err := current(ctx, db, schema)
	if err != nil {
		return 0, explainRead(err, schema)
	}
	return version, nil
}

// Check returns nil when the tables in schema have exactly the version that this release works with, and otherwise
// an error that says what to do; it is [ErrOutdated] or [ErrNewer] unless the version could not be read.
// The empty schema means [DefaultSchema]. It changes nothing.
func Check(ctx context.Context, db Queryer, schema string) error {
	schema, err := resolveSchema(schema)
	if err != nil {
		return err
	}
	have, err := Current(ctx, db, schema)
	if err != nil {
		return err
	}
	if have == 0 {
		return fmt.Errorf("migrations: schema %q: %w: call migrations.Apply, or run the SQL files with your migration tool",
			schema, ErrOutdated)
	}
	if have < Version {
		return fmt.Errorf("migrations: schema %q has version %d, this release needs %d: call migrations.Apply "+
			"or run the new SQL files with your migration tool: %w", schema, have, Version, ErrOutdated)
	}
	return refuseNewer(schema, have)
}

func refuseNewer(schema string, have int) error {
	if have <= Version {
		return nil
	}
	return fmt.Errorf("migrations: schema %q has version %d, this release knows up to %d: upgrade "+
		"github.com/ackafter/ackafter in this program: %w", schema, have, Version, ErrNewer)
}

// hasVersion looks in the catalog's tables: to_regclass answers from a cache of the session, which can miss what a
// rival committed a moment ago. It must be the first query of a transaction that has waited for one.
const hasVersion = `select exists (
	select from pg_catalog.pg_class c
	join pg_catalog.pg_namespace n on n.oid operator(pg_catalog.=) c.relnamespace
	where n.nspname operator(pg_catalog.=) $1::pg_catalog.text and c.relname operator(pg_catalog.=) 'schema_version')`

// current uses an execution mode that leaves no prepared statement behind, for PgBouncer's sake.
func current(ctx context.Context, db Queryer, schema string) (int, error) {
	var exists bool
	err := db.QueryRow(ctx, hasVersion, pgx.QueryExecModeExec, schema).Scan(&exists)
	if err != nil || !exists {
		return 0, err
	}
	var version int
	err = db.QueryRow(ctx, `select coalesce(pg_catalog.max(version), 0) from `+
		pgx.Identifier{schema, "schema_version"}.Sanitize(), pgx.QueryExecModeExec).Scan(&version)
	return version, err
}
