package failures_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/failures"
	"github.com/ackafter/ackafter/internal/pgtest"
	"github.com/ackafter/ackafter/internal/servers"
)

// PgBouncer lends a server's connection for one transaction at a time. Whatever
// mode the pool has, nothing may be left on it.
func TestPgBouncer(t *testing.T) {
	url := pgtest.URL(t)
	b := newBench(t, failures.Config{})
	bouncer, err := servers.StartPgBouncer(b.ctx, t.TempDir(), url, servers.PgBouncerConfig{
		PoolSize: 2,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, bouncer.Close()) })
	b.fill(300)
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		cfg, err := pgxpool.ParseConfig(bouncer.URL())
		require.NoError(t, err)
		cfg.ConnConfig.DefaultQueryExecMode = mode
		pool := b.poolOf(cfg)
		s, err := failures.New(pool, failures.Config{Schema: b.Schema, LockTimeout: 1234 * time.Millisecond})
		require.NoError(t, err)
		b.MustExec(t, "update %s.failed_messages set next_attempt_at = null")
		for range 2 { // on another connection of the server, perhaps
			list, err := s.List(b.ctx, failures.Filter{Subscriber: "s1", IDs: []string{"m000001"}}, failures.Page{})
			require.NoError(t, err)
			require.Equal(t, []string{"s1/m000001"}, ids(list))
			_, err = s.Get(b.ctx, "s1", "m000001")
			require.NoError(t, err)
			_, err = s.Count(b.ctx, failures.Filter{FailedBefore: time.Now()})
			require.NoError(t, err)
			require.NoError(t, s.Retry(b.ctx, "s1", "m000001"))
			var out bytes.Buffer
			require.NoError(t, s.Export(b.ctx, &out, failures.Filter{Subscriber: "s2"}))
			require.Equal(t, 15, strings.Count(out.String(), "\n"))
		}
		done, err := s.RetryAll(b.ctx, failures.Filter{Subscriber: "s1"}, failures.RetryOptions{BatchSize: 4})
		require.NoError(t, err)
		require.EqualValues(t, 14, done.Messages)
		require.NoError(t, s.LetGo(b.ctx, "s3", "m0000"+map[pgx.QueryExecMode]string{
			pgx.QueryExecModeCacheStatement: "03", pgx.QueryExecModeExec: "23", pgx.QueryExecModeSimpleProtocol: "43",
		}[mode], "obsolete"))
		var timeout string
		require.NoError(t, pool.QueryRow(b.ctx, "show lock_timeout", pgx.QueryExecModeSimpleProtocol).Scan(&timeout))
		require.Equal(t, "0", timeout, "left on the server's connection")
		pool.Close()
	}
}
