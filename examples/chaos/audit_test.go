package main

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/internal/pgtest"
)

var threeOrders = []order{
	{ID: "a", From: 1, To: 2, Cents: 100},
	{ID: "b", From: 2, To: 1, Cents: 100}, // undoes a: the balances alone hide both
	{ID: "c", From: 3, To: 4, Cents: 7},
}

// book applies orders as a worker does.
func book(t *testing.T, db *pgtest.DB, orders ...order) {
	t.Helper()
	l := ledger{db.Schema}
	for _, o := range orders {
		require.NoError(t, pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) error { return l.apply(t.Context(), tx, o) }))
	}
}

func TestAudit(t *testing.T) {
	t.Parallel()
	a, b, c := threeOrders[0], threeOrders[1], threeOrders[2]
	for name, test := range map[string]struct {
		booked                 []order
		sql                    string // done to the ledger afterwards
		effects, lost, doubled int
		problems               []string // parts of each
	}{
		"clean":            {booked: []order{a, b, c}, effects: 3},
		"in another order": {booked: []order{c, b, a}, effects: 3},
		"lost": {booked: []order{a, b}, effects: 2, lost: 1,
			problems: []string{"account 3 holds 0", "account 4 holds 0"}},
		"doubled": {booked: []order{a, b, c, c}, effects: 4, doubled: 1,
			problems: []string{"account 3 holds -14", "account 4 holds 14"}},
		"lost and doubled, and the balances hide it": {booked: []order{a, b, a, b}, effects: 4, lost: 1, doubled: 2,
			problems: []string{"account 3", "account 4"}},
		"never sent": {booked: []order{a, b, c, {ID: "x", From: 1, To: 1, Cents: 5}}, effects: 4,
			problems: []string{`entries of "x"`}},
		"another amount": {booked: []order{a, b, {ID: "c", From: 3, To: 4, Cents: 8}}, effects: 3,
			problems: []string{"account 3 holds -8 cents, its entries sum up to -8, and its orders to -7", "account 4"}},
		"a balance without entries": {booked: threeOrders, effects: 3,
			sql:      `update %s.accounts set balance = balance + 1 where id = 9`,
			problems: []string{"account 9 holds 1 cents, its entries sum up to 0", "all accounts together hold 1 cents"}},
		"half an order": {booked: threeOrders, effects: 2, // and a half
			sql:      `delete from %s.entries where order_id = 'c' and account = 4`,
			problems: []string{"account 4 holds 7 cents, its entries sum up to 0"}},
		"an account is gone": {booked: threeOrders, effects: 3,
			sql:      `delete from %s.accounts where id = 4`,
			problems: []string{"account 4 holds 0", "all accounts together hold -7"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			l := ledger{db.Schema}
			require.NoError(t, l.create(t.Context(), db.Pool))
			book(t, db, test.booked...)
			if test.sql != "" {
				db.MustExec(t, test.sql)
			}

			content, err := l.read(t.Context(), db.Pool)
			require.NoError(t, err)
			got := content.audit(threeOrders)

			require.Equal(t, test.effects, got.effects, "effects")
			require.Equal(t, test.lost, got.lost, "lost")
			require.Equal(t, test.doubled, got.doubled, "doubled")
			require.Len(t, got.problems, len(test.problems), "%q", got.problems)
			for i, part := range test.problems {
				require.Contains(t, got.problems[i], part)
			}
			require.Equal(t, name == "clean" || name == "in another order", got.clean())
		})
	}
}

func TestReportIsOneLine(t *testing.T) {
	t.Parallel()
	r := report{sent: 5000, delivered: 5310, duplicates: 310, findings: findings{effects: 5000}}
	require.Equal(t, "audit: sent=5000 delivered=5310 duplicates=310 effects=5000 lost=0 doubled=0 balanced=yes", r.String())
	r.findings = findings{effects: 4999, lost: 2, doubled: 1, problems: []string{"one"}}
	require.Equal(t, "audit: sent=5000 delivered=5310 duplicates=310 effects=4999 lost=2 doubled=1 balanced=no", r.String())
}
