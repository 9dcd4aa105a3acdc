package failures

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ackafter/ackafter/consumer"
)

// Count is how many messages of one subscriber are set aside for one reason.
type Count struct {
	Subscriber string          `json:"subscriber"`
	Reason     consumer.Reason `json:"reason"`
	Messages   int64           `json:"messages"`
	// ForGood is how many of them no worker tries again by itself.
	ForGood int64 `json:"for_good"`
	// Oldest is when the first of them was set aside.
	Oldest time.Time `json:"oldest"`
}

// Count counts the messages that f chooses, by subscriber and reason and in that
// order. What has none is left out.
func (s *Store) Count(ctx context.Context, f Filter) ([]Count, error) {
	if err := f.validate(); err != nil {
		return nil, err
	}
	var q query
	q.sql = `select subscriber_id, reason, count(*), count(*) filter (where ` + forGood + `), min(failed_at)
from ` + s.failed + where(f.conditions(&q)) + `
group by subscriber_id, reason
order by subscriber_id, reason`
	return read(ctx, s, &q, pgx.RowToStructByPos[Count])
}

// Page says which part of a list to return.
type Page struct {
	// Limit is how many messages to return at most. Zero means 100; more than
	// MaxLimit is an error.
	Limit int
	// After is where the page begins: List.Next of the page before. Zero means
	// with the oldest.
	After Cursor
}

// MaxLimit is how many messages a page may have.
const MaxLimit = 10_000

// List is one page of messages.
type List struct {
	Messages []Summary
	// Next is where the next page begins. It is zero when there was none.
	Next Cursor
}

// List returns messages that f chooses, the oldest first: by the time at which
// they were set aside, then by subscriber and id. It reads no bodies. However far
// down the list, a page takes the same time.
func (s *Store) List(ctx context.Context, f Filter, p Page) (List, error) {
	if p.Limit < 0 || p.Limit > MaxLimit {
		return List{}, fmt.Errorf("failures.Page.Limit: must be from 1 to %d, or 0 for the default, is %d", MaxLimit, p.Limit)
	}
	if p.Limit == 0 {
		p.Limit = 100
	}
	q, conditions, err := f.from(p.After)
	if err != nil {
		return List{}, err
	}
	q.sql = fmt.Sprintf("select %s\nfrom %s%s%s\nlimit %d", summaryColumns, s.failed, where(conditions), f.order(), p.Limit+1)
	all, err := read(ctx, s, q, scanSummary)
	if err != nil {
		return List{}, err
	}
	if len(all) <= p.Limit {
		return List{Messages: all}, nil
	}
	all = all[:p.Limit]
	return List{Messages: all, Next: all[len(all)-1].place().cursor()}, nil
}

// from begins a query of what f chooses behind c.
func (f Filter) from(c Cursor) (*query, []string, error) {
	if err := f.validate(); err != nil {
		return nil, nil, err
	}
	p, err := c.place()
	if err != nil {
		return nil, nil, err
	}
	var q query
	conditions := f.conditions(&q)
	if p != nil {
		conditions = append(conditions, f.after(&q, *p))
	}
	return &q, conditions, nil
}

// Get returns one message, whole. When it is not set aside the error is
// ErrNotFound.
func (s *Store) Get(ctx context.Context, subscriber, id string) (*Message, error) {
	if !storable(subscriber) || !storable(id) {
		return nil, notFound(subscriber, id)
	}
	var q query
	q.sql = "select " + messageColumns + "\nfrom " + s.failed + q.message(subscriber, id)
	found, err := read(ctx, s, &q, scanMessage)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, notFound(subscriber, id)
	}
	return found[0], nil
}
