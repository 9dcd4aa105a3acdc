package inbox_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/inbox"
	"github.com/ackafter/ackafter/internal/pgtest"
	"github.com/ackafter/ackafter/internal/servers"
)

// PgBouncer lends a server's connection for one transaction at a time.
func TestPgBouncer(t *testing.T) {
	url := pgtest.URL(t)
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	bouncer, err := servers.StartPgBouncer(ctx, t.TempDir(), url, servers.PgBouncerConfig{
		PoolSize: 4, // one mode at a time needs three: a transaction that is held, its rival, and a look
		Settings: map[string]string{"ignore_startup_parameters": "search_path"},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, bouncer.Close()) })
	t.Run("modes", func(t *testing.T) {
		for _, mode := range []pgx.QueryExecMode{
			pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
		} {
			t.Run(mode.String(), func(t *testing.T) { // one after the other, or they would wait for each other's connections
				exerciseMode(t, poolOn(t, bouncer.URL(), mode), mode)
			})
		}
	})

	// With prepared statements it would fail now and then; the start says so.
	var warned string
	p := plan
	p.Warn = func(problem string) { warned = problem }
	for mode, want := range map[pgx.QueryExecMode]string{
		pgx.QueryExecModeExec: "", pgx.QueryExecModeCacheStatement: "default_query_exec_mode=exec",
	} {
		warned = ""
		b := benchOn(t, poolOn(t, bouncer.URL(), pgx.QueryExecModeExec), inbox.Config{})
		pc := b.Pool.Config().Copy()
		pc.ConnConfig.DefaultQueryExecMode = mode
		pool, err := pgxpool.NewWithConfig(ctx, pc)
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		in, err := inbox.NewWithConfig(pool, inbox.Config{Schema: b.Schema})
		require.NoError(t, err)
		_ = in.Check(ctx, p)
		require.Contains(t, warned, want)
		if want == "" {
			require.Empty(t, warned)
		}
	}
}

func poolOn(t *testing.T, url string, mode pgx.QueryExecMode) *pgtest.DB {
	t.Helper()
	return pgtest.On(t, url+"&default_query_exec_mode="+strings.ReplaceAll(mode.String(), " ", "_"))
}
