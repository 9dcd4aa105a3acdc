package kafka

import (
	"fmt"
	"slices"
)

// watermark knows how far a partition may be committed: up to the first
// message that was delivered and is not settled, or to the end of what was
// delivered when all is settled. Offsets come in the order of the log; gaps
// are normal, since compaction, transactions and control records leave them.
type watermark struct {
	end     int64 // everything below was delivered or has nothing to deliver
	head    int   // entries before it are settled and gone
	offsets []int64
	settled []bool
}

func newWatermark(at int64) watermark { return watermark{end: at} }

// deliver notes that the message at offset goes to the consumer.
func (w *watermark) deliver(offset int64) {
	if offset < w.end {
		panic(fmt.Sprintf("kafka: offset %d is delivered after everything below %d was", offset, w.end))
	}
	w.offsets = append(w.offsets, offset)
	w.settled = append(w.settled, false)
	w.end = offset + 1
}

// pass notes that nothing below to is left to deliver.
func (w *watermark) pass(to int64) { w.end = max(w.end, to) }

// settle notes that the message at offset is done. It reports whether the
// position has moved.
func (w *watermark) settle(offset int64) bool {
	i, delivered := slices.BinarySearch(w.offsets[w.head:], offset)
	if !delivered {
		return false // it was settled before, and is gone
	}
	w.settled[w.head+i] = true
	if i > 0 {
		return false
	}
	for w.head < len(w.offsets) && w.settled[w.head] {
		w.head++
	}
	w.trim()
	return true
}

// trim frees the room of what is gone once that is half of all, so that each
// entry is moved at most once on average.
func (w *watermark) trim() {
	if w.head*2 < len(w.offsets) {
		return
	}
	w.offsets = append(w.offsets[:0], w.offsets[w.head:]...)
	w.settled = append(w.settled[:0], w.settled[w.head:]...)
	w.head = 0
}

// position is the offset to commit: everything below it is done.
func (w *watermark) position() int64 {
	if w.head < len(w.offsets) {
		return w.offsets[w.head]
	}
	return w.end
}

// held returns how many messages were delivered from position on, settled or
// not.
func (w *watermark) held() int { return len(w.offsets) - w.head }
