package migrationtools

import (
	"context"
	"crypto/rand"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ackafter/ackafter/internal/servers"
)

// golang-migrate reads the next file ahead, and leaves that goroutine behind when a file fails.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/golang-migrate/migrate/v4.(*Migration).Buffer"))
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// newDatabase makes a database for one test, since the tools keep their own tables in the schema public.
func newDatabase(t *testing.T) *pgx.ConnConfig {
	t.Helper()
	if testing.Short() {
		t.Skip("needs PostgreSQL; -short leaves it out")
	}
	url, err := servers.DatabaseURL()
	require.NoError(t, err)
	cfg, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	name := "tools_" + strings.ToLower(rand.Text())
	admin := func(sql string) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		conn, err := pgx.ConnectConfig(ctx, cfg)
		require.NoError(t, err)
		_, err = conn.Exec(ctx, sql)
		require.NoError(t, err)
		require.NoError(t, conn.Close(ctx))
	}
	admin("create database " + name)
	t.Cleanup(func() { admin("drop database " + name + " with (force)") })
	own := cfg.Copy()
	own.Database = name
	return own
}

func pool(t *testing.T, database *pgx.ConnConfig) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig("")
	require.NoError(t, err)
	cfg.ConnConfig = database.Copy()
	p, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

func withSQL(database *pgx.ConnConfig, do func(*sql.DB) error) error {
	db := stdlib.OpenDB(*database)
	defer func() { _ = db.Close() }()
	return do(db)
}

func withConn(ctx context.Context, database *pgx.ConnConfig, do func(*pgx.Conn) error) error {
	conn, err := pgx.ConnectConfig(ctx, database)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return do(conn)
}
