package inbox

import (
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// statements is the SQL of one inbox. Each statement names the schema, and
// casts its parameters, which are text, text[], bytea or bytea[].
type statements struct {
	begin string

	// claim takes (subscriber, ids, hashes) and returns the ids that are new.
	// The order is what keeps two batches from waiting for each other.
	// lock_timeout is set on the way, before the first row, which spares a
	// statement; it is local to the transaction, so that a connection from
	// PgBouncer goes back as it came.
	claim string

	// claimOne is claim for a single message, as (subscriber, id, hash). It
	// returns nothing: its command tag says whether there was a row to insert.
	// That spares the server a fifth of what a claim costs.
	claimOne string

	// lookup takes (subscriber, ids) and returns the hashes of those that are
	// there. Under READ COMMITTED it sees what rivals committed while the
	// claim waited for them.
	lookup string

	// unchanged takes (subscriber, id) of a row that the claim inserted, and
	// errs unless it was the current transaction that did so. It travels in
	// front of the commit.
	unchanged string

	// confirm makes the commit of a transaction that found only duplicates
	// wait for the synchronous standbys, if there are any. Their rows can be
	// visible without being replicated: PostgreSQL gives up the wait when the
	// commit was cancelled, or the server restarted, in the meantime.
	confirm string

	// role takes the role that the connection began with. A handler may have set
	// another for its transaction, for row-level security, that may not see our
	// tables.
	role string

	commit string

	// commitAndBegin is commit and begin in one, with the isolation of the
	// transaction that ends.
	commitAndBegin string
}

// batchLockTimeout is that of a batch. What it waits for may wait for what it has
// locked itself, and PostgreSQL looks into that only after a second, by default.
// The batch is divided then, and single messages wait as long as Config says.
const batchLockTimeout = 100 * time.Millisecond

func newStatements(cfg Config) statements {
	table := pgx.Identifier{cfg.Schema, "processed_messages"}.Sanitize()
	setLockTimeout := func(d time.Duration) string {
		ms := strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10)
		return `pg_catalog.set_config('lock_timeout', '` + ms + `', true)`
	}
	insert := `insert into ` + table + ` (subscriber_id, message_id, payload_hash)
`
	const once = `
on conflict (subscriber_id, message_id) do nothing`
	return statements{
		begin: "begin isolation level " + string(cfg.Isolation),
		claim: insert + `select $1::text, id, hash from unnest($2::text[], $3::bytea[]) as given (id, hash)
where (select ` + setLockTimeout(min(cfg.LockTimeout, batchLockTimeout)) + `) is not null
order by id collate "C"` + once + `
returning message_id`,
		claimOne: insert + `values ($1::text, $2::text, case when ` + setLockTimeout(cfg.LockTimeout) + ` is not null then $3::bytea end)` + once,
		lookup: `select message_id, payload_hash from ` + table + `
where subscriber_id = $1::text and message_id = any ($2::text[])`,
		unchanged: `select (case when exists (select from ` + table + `
	where subscriber_id = $1::text and message_id = $2::text and xmin = pg_current_xact_id_if_assigned()::xid)
	then '0' else '` + endedBySQL + `' end)::int`,
		confirm: `select pg_catalog.pg_logical_emit_message(true, 'ackafter', '')
where current_setting('synchronous_standby_names') <> ''
	and current_setting('synchronous_commit') not in ('off', 'local')`,
		role:           "select pg_catalog.set_config('role', $1::text, true)",
		commit:         "commit",
		commitAndBegin: "commit and chain",
	}
}

// endedBySQL is what PostgreSQL quotes in its error, and in its log, when
// unchanged finds another transaction.
const endedBySQL = "ackafter: the handler ended the transaction that holds its claim"
