package failures_test

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/failures"
	"github.com/ackafter/ackafter/inbox"
	"github.com/ackafter/ackafter/internal/pgtest"
	"github.com/ackafter/ackafter/migrations"
)

// The program of docs/operators.md runs, and prints what stands below it.
func TestOperatorsGuide(t *testing.T) {
	b := newBench(t, failures.Config{})
	text, err := os.ReadFile("../docs/operators.md")
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(text), "```go\n")
	program, rest, _ := strings.Cut(rest, "```\n\n```\n")
	want, rest, found := strings.Cut(rest, "```\n")
	require.True(t, found)
	name := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(name, []byte(program), 0o600))

	// It has the default schema, so this takes a database of its own.
	database, role := b.Schema+"_guide", b.Schema+"_guide"
	b.MustExec(t, "create role "+role)
	t.Cleanup(func() { b.MustExec(t, "drop role "+role) })
	b.MustExec(t, "create database "+database)
	t.Cleanup(func() { b.MustExec(t, "drop database "+database+" with (force)") })
	address, err := url.Parse(pgtest.URL(t))
	require.NoError(t, err)
	address.Path = "/" + database
	pool := pgtest.Pool(t, address.String())
	defer pool.Close()
	require.NoError(t, migrations.Apply(b.ctx, pool, migrations.Config{}))
	b.inbox = inbox.New(pool)
	f := failure("order-3", forGood)
	f.Error = "no such account"
	b.setAside("billing", failure("order-2", time.Hour), f)

	cmd := exec.CommandContext(b.ctx, "go", "run", name)
	cmd.Env = append(os.Environ(), "DATABASE_URL="+address.String())
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Equal(t, want, string(out))

	// The SQL is right, too.
	for {
		var sql string
		if _, rest, found = strings.Cut(rest, "```sql\n"); !found {
			return
		}
		sql, rest, _ = strings.Cut(rest, "```")
		_, err = pool.Exec(b.ctx, strings.ReplaceAll(sql, "to operator", "to "+role), pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err, sql)
	}
}
