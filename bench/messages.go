package main

import (
	"bytes"
	"encoding/json"
	"fmt"
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
)

// orders returns the messages of a case, duplicates included, and how many of
// them have an effect.
func orders(c benchCase) (all []order, effects int) {
	now := time.Now() // one for all: a duplicate is byte for byte the same
	for i := range c.Messages {
		if c.Duplicates > 0 && i%(100/c.Duplicates) == 1 {
			all = append(all, all[len(all)-1])
			continue
		}
		o := order{At: now.UnixNano(), ID: "m" + strconv.Itoa(i), Account: i * 7 % accounts, Amount: 1, Fail: c.Failing > 0 && i%(100/c.Failing) == 50}
		all = append(all, o)
		if !o.Fail && !c.AllOld {
			effects++
		}
	}
	return all, effects
}

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
