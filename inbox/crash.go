package inbox

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/ackafter/ackafter/consumer"
)

// BeginAttempts implements consumer.CrashInbox.
func (in *Inbox) BeginAttempts(ctx context.Context, subscriber string, ids []string, runner string, alone bool) (crashes []int, err error) {
	ctx, cancel := context.WithTimeout(ctx, in.cfg.ClaimTimeout)
	defer cancel()
	once := slices.Compact(slices.Sorted(slices.Values(ids)))
	rows, _ := in.pool.Query(ctx, in.attempts.begin, subscriber, once, runner, alone)
	counts := make(map[string]int, len(once))
	var id string
	var n int
	if _, err := pgx.ForEachRow(rows, []any{&id, &n}, func() error {
		counts[id] = n
		return nil
	}); err != nil {
		return nil, fmt.Errorf("inbox: note an attempt: %w: %w", consumer.ErrOutage, err)
	}
	for _, id := range ids {
		crashes = append(crashes, counts[id])
	}
	return crashes, nil
}

// EndAttempts implements consumer.CrashInbox.
func (in *Inbox) EndAttempts(ctx context.Context, subscriber string, ids []string) error {
	ctx, cancel := context.WithTimeout(ctx, in.cfg.CommitTimeout)
	defer cancel()
	if _, err := in.pool.Exec(ctx, in.attempts.end, subscriber, ids); err != nil {
		return fmt.Errorf("inbox: note the end of an attempt: %w: %w", consumer.ErrOutage, err)
	}
	return nil
}

// attemptStatements is the SQL on begun_attempts.
type attemptStatements struct {
	// begin takes (subscriber, ids, runner, alone) and returns, for each id, how
	// many other runners have begun. One runner counts once, however often it is
	// lost and found.
	begin string
	end   string // takes (subscriber, ids)
}

func newAttemptStatements(cfg Config) attemptStatements {
	table := pgx.Identifier{cfg.Schema, "begun_attempts"}.Sanitize()
	return attemptStatements{
		begin: `insert into ` + table + ` as a (subscriber_id, message_id, attempts, runner)
select $1::text, id, 1, $3::text from unnest($2::text[]) id order by id
on conflict (subscriber_id, message_id) do update
set attempts = a.attempts + (a.runner <> excluded.runner and $4::bool)::int,
	runner = case when $4::bool then excluded.runner else a.runner end,
	begun_at = now()
returning message_id, attempts - (runner = $3::text)::int`,
		end: `delete from ` + table + ` where subscriber_id = $1::text and message_id = any ($2::text[])`,
	}
}
