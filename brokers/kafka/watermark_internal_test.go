package kafka

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestWatermark(t *testing.T) {
	t.Parallel()
	type step struct {
		name     string
		do       func(w *watermark)
		position int64
		held     int
	}
	deliver := func(offsets ...int64) func(*watermark) {
		return func(w *watermark) {
			for _, o := range offsets {
				w.deliver(o)
			}
		}
	}
	settle := func(offset int64) func(*watermark) { return func(w *watermark) { w.settle(offset) } }
	pass := func(to int64) func(*watermark) { return func(w *watermark) { w.pass(to) } }
	w := newWatermark(3)
	for _, s := range []step{
		{"nothing delivered", func(*watermark) {}, 3, 0},
		{"a gap before the first", deliver(5, 6, 9), 5, 3},
		{"settled out of order", settle(6), 5, 3},
		{"settled twice", settle(6), 5, 3},
		{"unknown offsets", func(w *watermark) { w.settle(4); w.settle(7); w.settle(100) }, 5, 3},
		{"the first", settle(5), 9, 1},
		{"gone already", settle(5), 9, 1},
		{"a marker behind", pass(11), 9, 1},
		{"the last: past the marker", settle(9), 11, 0},
		{"only markers", pass(20), 20, 0},
		{"never back", pass(15), 20, 0},
		{"and on", deliver(20), 20, 1},
		{"to the end", settle(20), 21, 0},
	} {
		s.do(&w)
		if w.position() != s.position || w.held() != s.held {
			t.Fatalf("%s: position %d, held %d; want %d, %d", s.name, w.position(), w.held(), s.position, s.held)
		}
	}
}

// Against a model: whatever the order, the position is the smallest unsettled
// offset, never falls, and the room is bounded by what is held.
func TestWatermarkModel(t *testing.T) {
	t.Parallel()
	for range 200 {
		w, next := newWatermark(0), int64(0)
		var unsettled []int64
		last := int64(0)
		for range 500 {
			switch n := rand.IntN(10); {
			case n < 4:
				next += rand.Int64N(3)
				w.deliver(next)
				unsettled = append(unsettled, next)
				next++
			case n < 5:
				next += rand.Int64N(4)
				w.pass(next)
			case len(unsettled) > 0:
				i := rand.IntN(min(len(unsettled), 20))
				w.settle(unsettled[i])
				unsettled = slices.Delete(unsettled, i, i+1)
			}
			want := next
			if len(unsettled) > 0 {
				want = unsettled[0]
			}
			if w.position() != want || want < last {
				t.Fatalf("position %d, want %d; it was %d", w.position(), want, last)
			}
			last = want
			if len(w.offsets) > 2*w.held()+1 {
				t.Fatalf("%d entries for %d messages", len(w.offsets), w.held())
			}
		}
	}
}

func TestWatermarkRefusesDisorder(t *testing.T) {
	t.Parallel()
	w := newWatermark(5)
	defer func() {
		if recover() == nil {
			t.Error("an offset below the end was accepted")
		}
	}()
	w.deliver(4)
}

func BenchmarkWatermark(b *testing.B) {
	b.ReportAllocs()
	w := newWatermark(0)
	for i := range int64(b.N) {
		w.deliver(i)
		if i%100 == 99 { // the last first
			for o := i; o > i-100; o-- {
				w.settle(o)
			}
		}
	}
}
