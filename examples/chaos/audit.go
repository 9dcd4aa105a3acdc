package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// report is what a drill ends with.
type report struct {
	sent, delivered, duplicates int
	findings
}

// findings is what the audit of a ledger finds.
type findings struct {
	effects  int      // times that an order was booked
	lost     int      // orders without entries
	doubled  int      // orders booked more than once
	problems []string // why the books do not balance; none when they do
}

func (f findings) clean() bool { return f.lost == 0 && f.doubled == 0 && len(f.problems) == 0 }

// String is the line that a drill ends with.
func (r report) String() string {
	balanced := "yes"
	if len(r.problems) > 0 {
		balanced = "no"
	}
	return fmt.Sprintf("audit: sent=%d delivered=%d duplicates=%d effects=%d lost=%d doubled=%d balanced=%s",
		r.sent, r.delivered, r.duplicates, r.effects, r.lost, r.doubled, balanced)
}

// posting is what one order did to one account.
type posting struct {
	order   string
	account int
	entries int   // how many
	cents   int64 // their sum
}

// books is the whole content of a ledger.
type books struct {
	postings []posting
	balances map[int]int64 // by account
}

func (l ledger) read(ctx context.Context, pool *pgxpool.Pool) (books, error) {
	b := books{balances: make(map[int]int64)}
	rows, _ := pool.Query(ctx, l.sql(`select order_id, account, count(*), sum(cents)::bigint
from $schema.entries group by order_id, account`)) // ForEachRow returns the error
	var p posting
	_, err := pgx.ForEachRow(rows, []any{&p.order, &p.account, &p.entries, &p.cents}, func() error {
		b.postings = append(b.postings, p)
		return nil
	})
	if err != nil {
		return b, fmt.Errorf("read the entries: %w", err)
	}
	rows, _ = pool.Query(ctx, l.sql(`select id, balance from $schema.accounts`))
	var account int
	var balance int64
	_, err = pgx.ForEachRow(rows, []any{&account, &balance}, func() error {
		b.balances[account] = balance
		return nil
	})
	if err != nil {
		return b, fmt.Errorf("read the accounts: %w", err)
	}
	return b, nil
}

// audit compares the books with the orders that were sent.
func (b books) audit(sent []order) findings {
	var f findings
	entries := 0
	times := make(map[string]int) // each order was booked, at most on one account
	for _, p := range b.postings {
		entries += p.entries
		times[p.order] = max(times[p.order], p.entries)
	}
	f.effects = entries / 2
	known := make(map[string]bool, len(sent))
	for _, o := range sent {
		known[o.ID] = true
		switch n := times[o.ID]; {
		case n == 0:
			f.lost++
		case n > 1:
			f.doubled++
		}
	}
	for id := range times {
		if !known[id] {
			f.problems = append(f.problems, fmt.Sprintf("there are entries of %q, which was never sent", id))
		}
	}
	f.problems = append(f.problems, b.imbalances(sent)...)
	return f
}

// imbalances compares each balance with its entries and with the orders.
func (b books) imbalances(sent []order) []string {
	var problems []string
	booked, ordered := make(map[int]int64), make(map[int]int64)
	for _, p := range b.postings {
		booked[p.account] += p.cents
	}
	for _, o := range sent {
		ordered[o.From] -= o.Cents
		ordered[o.To] += o.Cents
	}
	total := int64(0)
	for account := range accounts {
		balance := b.balances[account]
		total += balance
		if balance != booked[account] || balance != ordered[account] {
			problems = append(problems, fmt.Sprintf("account %d holds %d cents, its entries sum up to %d, and its orders to %d",
				account, balance, booked[account], ordered[account]))
		}
	}
	if total != 0 {
		problems = append(problems, fmt.Sprintf("all accounts together hold %d cents instead of none", total))
	}
	return problems
}
