// Package pgtest gives each test a schema of its own in the real PostgreSQL.
package pgtest

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ackafter/ackafter/internal/servers"
	"github.com/ackafter/ackafter/migrations"
)

// DB is a migrated schema and a pool that finds nothing by search_path.
type DB struct {
	*pgxpool.Pool
	Schema string
}

// URL returns the address of the shared server. Without one the test fails;
// only -short skips it.
func URL(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a server; -short leaves those out")
	}
	url, err := servers.DatabaseURL()
	if err != nil {
		t.Fatal(err)
	}
	return url
}

// New returns a fresh schema on the shared server, dropped when the test ends.
func New(t testing.TB) *DB {
	t.Helper()
	return On(t, URL(t))
}

// On is New on a server of the caller's.
func On(t testing.TB, url string) *DB {
	t.Helper()
	db := &DB{Pool: Pool(t, url), Schema: "test_" + strings.ToLower(rand.Text()[:12])}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := migrations.Apply(ctx, db.Pool, migrations.Config{Schema: db.Schema}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		// A server that the test has stopped has nothing to clean.
		_, _ = db.Pool.Exec(ctx, "drop schema if exists "+db.Schema+" cascade")
		db.Pool.Close()
	})
	return db
}

// Pool returns a pool of at least eight connections with an empty search_path.
// The caller closes it.
func Pool(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = max(cfg.MaxConns, 8)
	cfg.ConnConfig.RuntimeParams["search_path"] = ""
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return pool
}

// Table returns name in the schema.
func (db *DB) Table(name string) string { return db.Schema + "." + name }

// MustExec runs SQL in which %s stands for the schema.
func (db *DB) MustExec(t testing.TB, sql string, args ...any) {
	t.Helper()
	if _, err := db.Pool.Exec(context.Background(), db.SQL(sql), args...); err != nil {
		t.Fatal(err)
	}
}

// Int returns the single number that a query yields, with %s for the schema.
func (db *DB) Int(t testing.TB, sql string, args ...any) (n int) {
	t.Helper()
	if err := db.Pool.QueryRow(context.Background(), db.SQL(sql), args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// SQL replaces each %s by the schema.
func (db *DB) SQL(sql string) string { return strings.ReplaceAll(sql, "%s", db.Schema) }

// Processed returns how many rows processed_messages holds.
func (db *DB) Processed(t testing.TB) int {
	t.Helper()
	return db.Int(t, "select count(*) from %s.processed_messages")
}
