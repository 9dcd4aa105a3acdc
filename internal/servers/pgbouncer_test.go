//go:build unix

package servers

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

func TestPgBouncerPoolsTransactions(t *testing.T) {
	needServers(t)
	t.Parallel()
	ctx := testContext(t)
	server := startPostgreSQL(ctx, t, t.TempDir(), PostgreSQLConfig{})
	bouncer, err := StartPgBouncer(ctx, t.TempDir(), server.URL(), PgBouncerConfig{PoolSize: 1})
	if err != nil {
		t.Fatalf("StartPgBouncer: %v", err)
	}
	closeAtEnd(t, bouncer)

	// Two clients at once on a pool of one connection: only possible when a
	// client has the connection for no longer than a transaction.
	backends := make([]int, 2)
	for n := range backends {
		conn, err := pgx.Connect(ctx, bouncer.URL())
		if err != nil {
			t.Fatalf("connect: %v", err)
		}
		t.Cleanup(func() { _ = conn.Close(ctx) })
		if err := conn.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeExec).Scan(&backends[n]); err != nil {
			t.Fatalf("query: %v", err)
		}
	}
	if backends[0] != backends[1] {
		t.Errorf("the clients used the backends %v, want the same", backends)
	}
}

func TestPgBouncerRefusesBadAddress(t *testing.T) {
	t.Parallel()
	_, err := StartPgBouncer(t.Context(), t.TempDir(), "postgres://%zz", PgBouncerConfig{})
	if err == nil || !strings.Contains(err.Error(), "address of the database behind PgBouncer") {
		t.Errorf("error = %v, want one about the address", err)
	}
}
