package kafka

import "slices"

// transaction is one that was aborted: the records of its producer from first
// on, up to its abort marker, never happened.
type transaction struct{ producer, first int64 }

// filter drops what a consumer that reads what is committed must not see:
// control records, and the records of aborted transactions. Each response
// tells of the transactions in it, so each gets a filter of its own.
type filter struct {
	waiting []transaction // by first offset
	aborted map[int64]bool
}

func newFilter(aborted []transaction) *filter {
	slices.SortFunc(aborted, func(a, b transaction) int { return int(min(max(a.first-b.first, -1), 1)) })
	return &filter{waiting: aborted, aborted: map[int64]bool{}}
}

// apply empties b if its records are not for consumers. It wants the batches
// in the order of the log.
func (f *filter) apply(b *batch) {
	for len(f.waiting) > 0 && f.waiting[0].first <= b.last {
		f.aborted[f.waiting[0].producer] = true
		f.waiting = f.waiting[1:]
	}
	switch {
	case b.is(control):
		if b.abort() {
			delete(f.aborted, b.producer)
		}
		b.empty()
	case b.is(transactional) && f.aborted[b.producer]:
		b.empty()
	}
}
