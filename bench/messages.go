package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"
)

// order is the body of a message, of 1 KiB as JSON.
type order struct {
	At      int64  `json:"at"` // when it was published, Unix nanoseconds
	ID      string `json:"id"`
	Account int    `json:"account"`
	Amount  int    `json:"amount"`
	Fail    bool   `json:"fail"`
}

const (
	bodyBytes = 1024
	accounts  = 1000
	// repeatedAfter is how far behind its original a duplicate is: in another
	// batch, where only the table tells.
	repeatedAfter = 997
)

// expected is what the database holds after a case.
type expected struct{ effects, processed, failed int }

// orders returns the messages of a case, duplicates included, and what is to
// come of them. They are the same in each round.
func orders(c benchCase) (all []order, want expected) {
	now := time.Now() // one for all: a duplicate is byte for byte the same
	random := rand.New(rand.NewPCG(1, 2))
	for i := range c.Messages + c.Warm {
		if c.Duplicates > 0 && i%(100/c.Duplicates) == 1 {
			all = append(all, all[max(0, len(all)-repeatedAfter)])
			continue
		}
		o := order{At: now.UnixNano(), ID: randomID(random), Account: random.IntN(accounts), Amount: 1,
			Fail: c.Failing > 0 && i%(100/c.Failing) == 50}
		if c.Apart {
			o.Account = i % accounts
		}
		all = append(all, o)
		want.processed++ // what is set aside has a row there, too
		switch {
		case o.Fail:
			want.failed++
		case !c.AllOld:
			want.effects++
		}
	}
	return all, want
}

// randomID looks like a UUID, and is as scattered over an index.
func randomID(r *rand.Rand) string {
	a, b := r.Uint64(), r.Uint64()
	return fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", a>>32, a>>16&0xffff, a&0xffff, b>>48, b&0xffffffffffff)
}

// hash is that of the body, as the inbox stores it.
func (o order) hash() []byte {
	sum := sha256.Sum256(o.body())
	return sum[:16]
}

// key is the account: ours handles the messages of one key in order, and so do
// Kafka's partitions.
func (o order) key() string { return strconv.Itoa(o.Account) }

// body returns o as JSON, with its time at a fixed place.
func (o order) body() []byte {
	b := fmt.Appendf(make([]byte, 0, bodyBytes), `{"at":%d,"id":%q,"account":%d,"amount":%d,"fail":%v,"pad":"`,
		o.At, o.ID, o.Account, o.Amount, o.Fail)
	b = append(b, bytes.Repeat([]byte{'x'}, bodyBytes-len(b)-2)...)
	return append(b, `"}`...)
}

// publishedAt reads the time of a body.
func publishedAt(body []byte) time.Time {
	n, _ := strconv.ParseInt(string(body[6:25]), 10, 64)
	return time.Unix(0, n)
}

func decode(body []byte) (o order, err error) {
	err = json.Unmarshal(body, &o)
	return o, err
}
