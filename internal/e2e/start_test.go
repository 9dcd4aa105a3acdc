//go:build unix

package e2e

import (
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
)

const wrongPassword = "wrong-and-secret"

// startCases are mistakes, each with what the error says of the cause and of
// the cure.
var startCases = []struct {
	name    string
	mistake func(*world, *parts)
	says    []string
}{
	{"queue missing", func(w *world, _ *parts) { w.q.delete() },
		[]string{"the queue", "does not exist in vhost", "create it, or set Config.Declare"}},
	{"AMQP password", func(w *world, p *parts) { p.Rabbit.URL = withPassword(w.t, p.Rabbit.URL) },
		[]string{"refuses the user", "wrong user or password in Config.URL"}},
	{"schema not migrated", func(w *world, _ *parts) { w.db.MustExec(w.t, "drop schema %s cascade") },
		[]string{"the tables are missing", "call migrations.Apply"}},
	{"database newer", func(w *world, _ *parts) {
		w.db.MustExec(w.t, "insert into %s.schema_version (version) values (9999)")
	}, []string{"has version 9999, this release knows up to", "upgrade github.com/ackafter/ackafter"}},
	{"synchronous_commit off", func(_ *world, p *parts) { p.Pool = setting("synchronous_commit", "off") },
		[]string{"synchronous_commit is off", "turn it on for this role"}},
	{"sessions idle in a transaction end early", func(_ *world, p *parts) { p.Pool = setting("idle_in_transaction_session_timeout", "5s") },
		[]string{"the handler may take 30s", "5s (idle_in_transaction_session_timeout)", "lower the first or raise the second"}},
	{"pool too small", func(_ *world, p *parts) { p.MaxTransactions = 10 },
		[]string{"Config.MaxTransactions is 10, and the pool has only 9 connections", "raise pool_max_conns"}},
	{"database missing", func(_ *world, p *parts) { p.Pool = func(c *pgxpool.Config) { c.ConnConfig.Database = "nowhere" } },
		[]string{`database "nowhere" does not exist`}},
}

func TestWrongStartSaysCauseAndCure(t *testing.T) {
	t.Parallel()
	for _, c := range startCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.q.send("a")
			p := w.parts()
			c.mistake(w, &p)
			requireRefusedStart(t, w, p, c.says...)
		})
	}
}

// The shared server may let everybody in, so this takes one that does not.
func TestWrongDatabasePasswordIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	s := privatePostgreSQL(t)
	w := newWorldOn(t, s.URL(), amqpURL(t))
	w.db.MustExec(t, "create role locked login password 'right'")
	p := w.parts()
	p.DatabaseURL = withPassword(t, p.DatabaseURL)
	p.Pool = func(c *pgxpool.Config) { c.ConnConfig.User = "locked" }
	requireRefusedStart(t, w, p, `password authentication failed for user "locked"`)
}

// requireRefusedStart requires that Run returns at once, and gives nothing
// away.
func requireRefusedStart(t *testing.T, w *world, p parts, says ...string) {
	t.Helper()
	began := time.Now()
	err := w.start(p).wait()
	require.Error(t, err)
	require.Less(t, time.Since(began), 10*time.Second, "it waited for something to pass: %v", err)
	require.NotErrorIs(t, err, consumer.ErrOutage)
	require.ErrorContains(t, err, `subscriber "`+subscriber+`" cannot start`)
	for _, text := range says {
		require.ErrorContains(t, err, text)
	}
	require.NotContains(t, err.Error(), wrongPassword)
	require.NotContains(t, w.log.String(), wrongPassword)
	require.Zero(t, w.log.count(`"consumer started"`))
}

func withPassword(t *testing.T, raw string) string {
	u, err := url.Parse(raw)
	require.NoError(t, err)
	u.User = url.UserPassword(u.User.Username(), wrongPassword)
	return u.String()
}

func setting(name, value string) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams[name] = value }
}
