package migrations

import (
	"context"
	"crypto/rand"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ackafter/ackafter/internal/servers"
	"github.com/ackafter/ackafter/internal/testmain"
)

func TestMain(m *testing.M) {
	if os.Getenv(childSchema) != "" {
		os.Exit(applyAsChild())
	}
	testmain.Need("DATABASE_URL")
	goleak.VerifyTestMain(m)
}

// testContext ends a test that hangs, and says where.
func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func databaseURL(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("needs PostgreSQL; -short leaves it out")
	}
	url, err := servers.DatabaseURL()
	require.NoError(t, err)
	return url
}

// connect returns a pool of its own, closed at the end, with settings of the session changed by configure.
func connect(t *testing.T, configure ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(databaseURL(t))
	require.NoError(t, err)
	cfg.MaxConns = 2
	for _, change := range configure {
		change(cfg)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func parameter(name, value string) func(*pgxpool.Config) {
	return func(cfg *pgxpool.Config) { cfg.ConnConfig.RuntimeParams[name] = value }
}

func as(role string) func(*pgxpool.Config) {
	return func(cfg *pgxpool.Config) { cfg.ConnConfig.User = role; cfg.ConnConfig.Password = role }
}

// newSchema returns a name that no other test has, and drops whatever the test made there.
func newSchema(t *testing.T, prefix string) string {
	t.Helper()
	pool := connect(t)
	schema := prefix + strings.ToLower(rand.Text())
	t.Cleanup(func() { run(t, pool, "drop schema if exists "+quote(schema)+" cascade") })
	return schema
}

// run executes SQL when the test's own context may be over.
func run(t *testing.T, pool *pgxpool.Pool, sql string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	_, err := pool.Exec(ctx, sql)
	require.NoError(t, err, sql)
}

func quote(names ...string) string { return pgx.Identifier(names).Sanitize() }

func applied(t *testing.T, pool *pgxpool.Pool, prefix string) string {
	t.Helper()
	schema := newSchema(t, prefix)
	require.NoError(t, Apply(testContext(t), pool, Config{Schema: schema}))
	return schema
}

func requireVersion(t *testing.T, pool *pgxpool.Pool, schema string, want int) {
	t.Helper()
	have, err := Current(testContext(t), pool, schema)
	require.NoError(t, err)
	require.Equal(t, want, have)
}
