package migrations

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

func TestUpDownUp(t *testing.T) {
	t.Parallel()
	pool, schema := connect(t), newSchema(t, "updown_")
	all := loaded(t, schema)
	up := func() string {
		for _, m := range all {
			run(t, pool, m.up)
			requireVersion(t, pool, schema, m.version)
		}
		return catalog(t, pool, schema)
	}
	first := up()
	require.Contains(t, first, "processed_messages")
	for i := len(all) - 1; i >= 0; i-- {
		run(t, pool, all[i].down)
		requireVersion(t, pool, schema, all[i].version-1)
	}
	require.Empty(t, catalog(t, pool, schema))
	require.Equal(t, first, up())
}

func TestConstraints(t *testing.T) {
	t.Parallel()
	pool := connect(t)
	insert := "insert into " + quote(applied(t, pool, "checks_"), "processed_messages") +
		" (subscriber_id, message_id, payload_hash) values ($1, $2, $3)"
	const check, null, encoding, unique = "23514", "23502", "22021", "23505"
	text := func(n int) *string { s := strings.Repeat("x", n); return &s }
	nul := "a\x00b"
	for name, c := range map[string]struct {
		subscriber, message *string
		hash                []byte
		code                string
	}{
		"longest":               {text(255), text(512), make([]byte, 16), ""},
		"no message id":         {text(1), nil, nil, null},
		"empty message id":      {text(1), text(0), nil, check},
		"message id of 513":     {text(1), text(513), nil, check},
		"bytes, not characters": {text(1), ptr(strings.Repeat("é", 257)), nil, check},
		"NUL":                   {text(1), &nul, nil, encoding},
		"no subscriber":         {nil, text(1), nil, null},
		"empty subscriber":      {text(0), text(1), nil, check},
		"subscriber of 256":     {text(256), text(1), nil, check},
		"hash of 15":            {text(1), text(2), make([]byte, 15), check},
		"hash of 32":            {text(1), text(2), make([]byte, 32), check},
		"empty hash":            {text(1), text(2), []byte{}, check},
	} {
		_, err := pool.Exec(testContext(t), insert, c.subscriber, c.message, c.hash)
		if c.code == "" {
			require.NoError(t, err, name)
			_, err = pool.Exec(testContext(t), insert, c.subscriber, c.message, c.hash)
			requireCode(t, err, unique)
			continue
		}
		requireCode(t, err, c.code)
	}
}

func ptr(s string) *string { return &s }

func TestADBAIsToldNeverToPartitionByTime(t *testing.T) {
	t.Parallel()
	pool := connect(t)
	var comment string
	require.NoError(t, pool.QueryRow(testContext(t), "select obj_description($1::regclass)",
		quote(applied(t, pool, "comment_"), "processed_messages")).Scan(&comment))
	require.Contains(t, comment, "this subscriber never runs this message from the broker again")
	require.Contains(t, comment, "Never partition by time")
}

// catalog describes everything in a schema in words that do not hold its name.
func catalog(t *testing.T, pool *pgxpool.Pool, schema string) string {
	t.Helper()
	const query = `
		with o as (select c.oid, c.relname, c.relkind, c.reloptions from pg_class c where c.relnamespace = to_regnamespace($1))
		select concat_ws(' | ', o.relname, o.relkind, o.reloptions, obj_description(o.oid, 'pg_class')) from o
		union all
		select concat_ws(' | ', o.relname, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), co.collname, a.attnotnull,
			pg_get_expr(d.adbin, d.adrelid), col_description(o.oid, a.attnum))
		from o join pg_attribute a on a.attrelid = o.oid and a.attnum > 0
			left join pg_attrdef d on (d.adrelid, d.adnum) = (o.oid, a.attnum)
			left join pg_collation co on co.oid = a.attcollation
		union all
		select concat_ws(' | ', o.relname, k.conname, pg_get_constraintdef(k.oid)) from o join pg_constraint k on k.conrelid = o.oid
		union all
		select 'function | ' || p.proname from pg_proc p where p.pronamespace = to_regnamespace($1)
		order by 1`
	rows, err := pool.Query(testContext(t), query, quote(schema))
	require.NoError(t, err)
	var lines []string
	for rows.Next() {
		var line string
		require.NoError(t, rows.Scan(&line))
		lines = append(lines, strings.ReplaceAll(line, schema, "SCHEMA"))
	}
	require.NoError(t, rows.Err())
	return strings.Join(lines, "\n")
}
