//go:build unix

package migrations

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/internal/servers"
)

// Two server connections for ten workers: whatever a session kept would be found by another worker, or be missing.
func TestTenAtOnceThroughPgBouncer(t *testing.T) {
	t.Parallel()
	schema := newSchema(t, "bouncer_")
	bouncer, err := servers.StartPgBouncer(testContext(t), t.TempDir(), databaseURL(t), servers.PgBouncerConfig{PoolSize: 2})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, bouncer.Close()) })
	through, err := pgx.ParseConfig(bouncer.URL())
	require.NoError(t, err)

	applyTenAtOnce(t, schema, func(cfg *pgxpool.Config) {
		cfg.ConnConfig = through.Copy() // in pgx's default mode, which prepares statements where it is let
	})
}
