package inbox

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ackafter/ackafter/consumer"
)

// BeginAttempt implements consumer.CrashInbox.
func (in *Inbox) BeginAttempt(ctx context.Context, subscriber, id, runner string, alone bool) (crashes int, err error) {
	ctx, cancel := context.WithTimeout(ctx, in.cfg.ClaimTimeout)
	defer cancel()
	err = in.pool.QueryRow(ctx, in.attempts.begin, subscriber, id, runner, alone).Scan(&crashes)
	if err != nil {
		return 0, fmt.Errorf("inbox: note an attempt: %w: %w", consumer.ErrOutage, err)
	}
	return crashes, nil
}

// EndAttempt implements consumer.CrashInbox.
func (in *Inbox) EndAttempt(ctx context.Context, subscriber, id string) error {
	ctx, cancel := context.WithTimeout(ctx, in.cfg.CommitTimeout)
	defer cancel()
	if _, err := in.pool.Exec(ctx, in.attempts.end, subscriber, id); err != nil {
		return fmt.Errorf("inbox: note the end of an attempt: %w: %w", consumer.ErrOutage, err)
	}
	return nil
}

// attemptStatements is the SQL on begun_attempts.
type attemptStatements struct {
	// begin takes (subscriber, id, runner, alone) and returns how many other
	// runners have begun. One runner counts once, however often it is lost and
	// found.
	begin string
	end   string // takes (subscriber, id)
}

func newAttemptStatements(cfg Config) attemptStatements {
	table := pgx.Identifier{cfg.Schema, "begun_attempts"}.Sanitize()
	return attemptStatements{
		begin: `insert into ` + table + ` as a (subscriber_id, message_id, attempts, runner)
values ($1::text, $2::text, 1, $3::text)
on conflict (subscriber_id, message_id) do update
set attempts = a.attempts + (a.runner <> excluded.runner and $4::bool)::int,
	runner = case when $4::bool then excluded.runner else a.runner end,
	begun_at = now()
returning attempts - (runner = $3::text)::int`,
		end: `delete from ` + table + ` where subscriber_id = $1::text and message_id = $2::text`,
	}
}
