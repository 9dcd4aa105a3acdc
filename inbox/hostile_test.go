package inbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/inbox"
)

// Whatever a handler does to its connection, the messages that come after it take
// effect once, and do not have to wait.
func TestHostileSQL(t *testing.T) {
	for _, statement := range []string{
		"deallocate all", "discard all", "discard temp", "set role pg_monitor", "set session authorization pg_monitor",
		"set search_path to nowhere", "reset all", "set transaction read only", "set default_transaction_read_only = on",
		"set session characteristics as transaction read only", "set default_transaction_isolation = serializable",
		"set lock_timeout = '1ms'", "set statement_timeout = '1ms'", "set idle_in_transaction_session_timeout = '1ms'",
		"set synchronous_commit = off", "set client_encoding = 'latin1'", "set session_replication_role = replica",
		"savepoint s", "savepoint s; rollback to s", "set constraints all deferred", "lock table pg_class",
		"create temp table processed_messages (subscriber_id text, message_id text)",
		"create temp table effects (id text)", "declare c cursor with hold for select 1", "listen somebody",
		"select pg_advisory_lock(1)", "do $$ begin commit; end $$", "do $$ begin raise exception 'no'; end $$",
		"prepare transaction 'x'", "copy (select 1) to stdout", "copy effects from stdin", "begin", "start transaction",
		"select pg_terminate_backend(pg_backend_pid())", "select pg_cancel_backend(pg_backend_pid())",
		"select pg_sleep(3)", "", ";", "--", "select 1 as commit", "/* commit */ select 1", "set plan_cache_mode = force_generic_plan",
	} {
		for _, maxBatch := range []int{1, 20} {
			t.Run(statement, func(t *testing.T) {
				b := newRunnerBench(t)
				pool, err := pgxpool.NewWithConfig(b.ctx, b.Pool.Config()) // its connections are not ours to look through
				require.NoError(t, err)
				defer pool.Close()
				b.cfg.Inbox, err = inbox.NewWithConfig(pool, inbox.Config{Schema: b.Schema})
				require.NoError(t, err)
				b.cfg.Probe = consumer.Backoff{Min: time.Millisecond, Max: 20 * time.Millisecond}
				b.cfg.MaxBatch = maxBatch
				b.cfg.Attempts, b.cfg.RetryLater = 2, nil
				b.handle = func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
					if m.ID != "m5" {
						return nil
					}
					return sql(statement)(ctx, tx)
				}
				b.broker.Publish(numbered(40)...)
				stop := b.start()
				b.publish()
				stop()
				aside := b.Int(t, "select count(*) from %s.failed_messages")
				require.LessOrEqual(t, aside, 1)
				require.Equal(t, 40, b.Processed(t))
				b.requireChanges(40 - aside)
				require.Equal(t, 40-aside, b.Int(t, "select count(distinct id) from %s.effects"))
				if aside == 1 {
					b.reason("m5")
				}
			})
		}
	}
}
