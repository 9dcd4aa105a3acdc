package inbox

import (
	"bytes"
	"fmt"
	"time"

	"github.com/ackafter/ackafter/consumer"
)

// claim is what the database says of the messages of one Process, once per id
// however often it stands among them.
type claim struct {
	ms     []*consumer.Message
	ids    []string
	hashes [][]byte       // of the first message with the id; of the row once that was looked up
	mine   []bool         // whether the row is ours
	there  []bool         // whether it was looked up, and found
	index  map[string]int // by id; nil for a single message
	err    error          // of a claim that was made ahead
	made   time.Time      // when that was
}

// newClaim returns nil when there is nothing to claim.
func newClaim(ms []*consumer.Message) *claim {
	if len(ms) == 0 {
		return nil
	}
	c := &claim{ms: ms, ids: make([]string, 0, len(ms)), hashes: make([][]byte, 0, len(ms))}
	if len(ms) > 1 {
		c.index = make(map[string]int, len(ms))
	}
	for _, m := range ms {
		if _, twice := c.index[m.ID]; twice {
			continue
		}
		if c.index != nil {
			c.index[m.ID] = len(c.ids)
		}
		c.ids = append(c.ids, m.ID)
		c.hashes = append(c.hashes, m.Hash)
	}
	c.mine, c.there = make([]bool, len(c.ids)), make([]bool, len(c.ids))
	return c
}

func (c *claim) at(id string) int { return c.index[id] } // 0 for a single message

// stored notes the hash of a row that was there before.
func (c *claim) stored(id, hash []byte) {
	i := c.index[string(id)]
	c.hashes[i], c.there[i] = bytes.Clone(hash), true
}

// unexplained returns an error for an id that was not inserted, and yet is not
// there: a duplicate needs a row to prove it. A row that was deleted meanwhile
// is found out by claiming again, and nothing is lost by that.
func (c *claim) unexplained() error {
	for i, id := range c.ids {
		if !c.mine[i] && !c.there[i] {
			return fmt.Errorf("inbox: %w: message %.100q was not inserted into processed_messages, and is not there: "+
				"is there a trigger, or is somebody deleting?", consumer.ErrOutcomeUnknown, id)
		}
	}
	return nil
}

// split returns the ids that are ours, and those whose rows were there before.
func (c *claim) split() (mine, seen []string) {
	for i, id := range c.ids {
		if c.mine[i] {
			mine = append(mine, id)
		} else {
			seen = append(seen, id)
		}
	}
	return mine, seen
}

// fresh returns the messages to apply: the first of each id that is ours.
func (c *claim) fresh() []*consumer.Message {
	fresh := make([]*consumer.Message, 0, len(c.ids))
	c.each(func(_ int, m *consumer.Message, isFresh bool) {
		if isFresh {
			fresh = append(fresh, m)
		}
	})
	return fresh
}

// verdicts tells what became of each message once the transaction has ended.
func (c *claim) verdicts() []consumer.Verdict {
	verdicts := make([]consumer.Verdict, len(c.ms))
	c.each(func(n int, m *consumer.Message, isFresh bool) {
		switch {
		case isFresh:
			verdicts[n] = consumer.Processed
		case differ(m.Hash, c.hashes[c.at(m.ID)]):
			verdicts[n] = consumer.Mismatch
		default:
			verdicts[n] = consumer.Duplicate
		}
	})
	return verdicts
}

// each calls f with every message, and whether it is the first of an id that
// is ours.
func (c *claim) each(f func(n int, m *consumer.Message, isFresh bool)) {
	first := 0 // ids stand in the order of their first messages
	for n, m := range c.ms {
		i := c.at(m.ID)
		f(n, m, i == first && c.mine[i])
		if i == first {
			first++
		}
	}
}

// differ compares two hashes. A missing one equals every other.
func differ(a, b []byte) bool {
	return len(a) > 0 && len(b) > 0 && !bytes.Equal(a, b)
}
