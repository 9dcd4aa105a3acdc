package main

import (
	"fmt"
	"math/rand/v2"
)

// accounts is how many there are. Few, so that transfers meet on them.
const accounts = 50

// order is the body of a message: move so many cents between two accounts. ID
// is also the id of the message.
type order struct {
	ID    string `json:"id"`
	From  int    `json:"from"`
	To    int    `json:"to"`
	Cents int64  `json:"cents"`
}

func newOrders(n int, random *rand.Rand) []order {
	orders := make([]order, n)
	for i := range orders {
		from := random.IntN(accounts)
		orders[i] = order{
			ID:    fmt.Sprintf("order-%06d", i),
			From:  from,
			To:    (from + 1 + random.IntN(accounts-1)) % accounts, // any other
			Cents: 1 + random.Int64N(10_000),
		}
	}
	return orders
}

// withDuplicates returns the orders as a producer sends them that sometimes
// missed a confirmation: some twice, and not one right after the other.
func withDuplicates(orders []order, share percent, random *rand.Rand) []order {
	sent := append([]order(nil), orders...)
	for _, o := range orders {
		if random.Float64()*100 < float64(share) {
			sent = append(sent, o)
		}
	}
	random.Shuffle(len(sent), func(i, j int) { sent[i], sent[j] = sent[j], sent[i] })
	return sent
}
