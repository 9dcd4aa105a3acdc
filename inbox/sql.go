package inbox

import (
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// statements is the SQL of one inbox. Each statement names the schema, and
// works in every exec mode of pgx: all parameters are text, text[], bytea or
// bytea[], and all results text, bytea or bool.
type statements struct {
	begin string

	// claim takes (subscriber, ids, hashes) and returns the ids that are new,
	// each with the transaction's id. The order is what keeps two batches from
	// waiting for each other. The transaction's id is read only in a row that
	// is inserted, since reading it assigns one. lock_timeout is set on the
	// way, before the first row, which spares a statement; it is local to the
	// transaction, so that a connection from PgBouncer goes back as it came.
	claim string

	// claimOne is claim for a single message, as (subscriber, id, hash). It
	// spares the server a tenth of what one message costs.
	claimOne string

	// lookup takes (subscriber, ids) and returns the hashes of those that are
	// there. Under READ COMMITTED it sees what rivals committed while the
	// claim waited for them.
	lookup string

	// unchanged takes the transaction's id from the claim, and errs unless
	// that is still the current one. It travels in front of the commit.
	unchanged string

	// confirm makes the commit of a transaction that found only duplicates
	// wait for the synchronous standbys, if there are any. Their rows can be
	// visible without being replicated: PostgreSQL gives up the wait when the
	// commit was cancelled, or the server restarted, in the meantime.
	confirm string
}

func newStatements(cfg Config) statements {
	table := pgx.Identifier{cfg.Schema, "processed_messages"}.Sanitize()
	lockTimeout := strconv.FormatInt(int64((cfg.LockTimeout+time.Millisecond-1)/time.Millisecond), 10)
	insert := `insert into ` + table + ` (subscriber_id, message_id, payload_hash)
`
	setLockTimeout := `where (select pg_catalog.set_config('lock_timeout', '` + lockTimeout + `', true)) is not null`
	const returning = `
on conflict (subscriber_id, message_id) do nothing
returning message_id, pg_current_xact_id()::text`
	return statements{
		begin: "begin isolation level " + string(cfg.Isolation),
		claim: insert + `select $1::text, id, hash from unnest($2::text[], $3::bytea[]) as given (id, hash)
` + setLockTimeout + `
order by id collate "C"` + returning,
		claimOne: insert + `select $1::text, $2::text, $3::bytea
` + setLockTimeout + returning,
		lookup: `select message_id, payload_hash from ` + table + `
where subscriber_id = $1::text and message_id = any ($2::text[])`,
		unchanged: `select (case when pg_current_xact_id_if_assigned()::text is not distinct from $1::text
	then '0' else '` + endedBySQL + `' end)::int`,
		confirm: `select pg_catalog.pg_logical_emit_message(true, 'ackafter', '')
where current_setting('synchronous_standby_names') <> ''
	and current_setting('synchronous_commit') not in ('off', 'local')`,
	}
}

// endedBySQL is what PostgreSQL quotes in its error, and in its log, when
// unchanged finds another transaction.
const endedBySQL = "ackafter: the handler ended the transaction that holds its claim"
