package main

import (
	"fmt"
	"slices"
	"strconv"
)

// benchCase is something to be measured.
type benchCase struct {
	Name string
	// Kind says what consumes: ours, hand, group, watermill, broker.
	Kind string
	// MaxBatch, Queued and Batch say how ours, and the loops by hand in batches,
	// handle messages.
	MaxBatch int
	Queued   bool
	Batch    bool
	// What is in the messages, in percent, and in the table before.
	Duplicates int
	Failing    int
	AllOld     bool // all were processed before
	OldRows    int  // others were
	// Apart has messages that are near each other change different accounts, so
	// that no transaction waits for another. Otherwise accounts are random.
	Apart bool
	// Rate is how many messages are published a second while they are consumed;
	// zero is a backlog.
	Rate     int
	Messages int // of a backlog, for one worker; those of Warm come on top
	// Warm is how many messages come first and are not counted. It is as many as
	// Kafka's source takes for Redelivered after an assignment (its Window), which
	// cost two transactions more, which a batch shares.
	Warm int
	Once bool // is measured with one worker only

	Broker  string
	Workers int
}

func (c benchCase) String() string { return fmt.Sprintf("%s %s/%d", c.Broker, c.Name, c.Workers) }

// hundred is how many messages a batch has.
const hundred = 100

func allCases() []benchCase {
	return []benchCase{
		{Name: "hand", Kind: "hand", Messages: 6_000},
		{Name: "watermill", Kind: "watermill", Messages: 6_000},
		{Name: "maxbatch-1", Kind: "ours", MaxBatch: 1, Messages: 6_000},
		{Name: "maxbatch-100", Kind: "ours", MaxBatch: hundred, Messages: 30_000},
		{Name: "group-ceiling", Kind: "group", MaxBatch: hundred, Messages: 30_000},
		{Name: "queued", Kind: "ours", MaxBatch: hundred, Queued: true, Messages: 60_000},
		{Name: "queued-ceiling", Kind: "group", MaxBatch: hundred, Queued: true, Messages: 60_000},
		{Name: "batchhandler", Kind: "ours", MaxBatch: hundred, Batch: true, Messages: 60_000},
		{Name: "broker", Kind: "broker", Messages: 60_000},
		{Name: "duplicates-10", Kind: "ours", MaxBatch: hundred, Duplicates: 10, Messages: 30_000, Once: true},
		{Name: "duplicates-only", Kind: "ours", MaxBatch: hundred, AllOld: true, Messages: 60_000, Once: true},
		{Name: "failing-1", Kind: "ours", MaxBatch: hundred, Failing: 1, Messages: 30_000, Once: true},
		{Name: "old-rows-10m", Kind: "ours", MaxBatch: hundred, OldRows: 10_000_000, Messages: 30_000, Once: true},
		{Name: "latency-1", Kind: "ours", MaxBatch: 1, Rate: 500, Messages: 5_000, Once: true},
		{Name: "latency-100", Kind: "ours", MaxBatch: hundred, Rate: 500, Messages: 5_000, Once: true},
	}
}

func caseNames() []string {
	var names []string
	for _, c := range allCases() {
		names = append(names, c.Name)
	}
	return names
}

// selected returns the cases of one round with one broker.
func selected(o options, broker string) []benchCase {
	var cases []benchCase
	for _, c := range allCases() {
		for i, workers := range o.workers {
			n, err := strconv.Atoi(workers)
			if err != nil || !slices.Contains(o.cases, c.Name) || c.Once && i > 0 {
				continue
			}
			c.Broker, c.Workers, c.Apart = broker, n, o.accounts == accountsApart
			scaled := float64(c.Messages) * o.scale
			if n > 1 {
				scaled *= 1.5
			}
			c.Messages = max(200, int(scaled))
			if o.messages > 0 && c.Rate == 0 {
				c.Messages = o.messages
			}
			c.Warm = prefetch * n
			cases = append(cases, c)
			c.Messages = allCases()[slices.Index(caseNames(), c.Name)].Messages
		}
	}
	return cases
}
