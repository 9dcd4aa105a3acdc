package kafka

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/segmentio/kafka-go"
)

// read returns the values of what is fetched from offset on, and where to go
// on.
func read(t *testing.T, r *fetched, offset int64) (values []string, next int64) {
	t.Helper()
	bs, next, err := r.batches(offset)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range bs {
		for {
			rec, err := b.next()
			if err != nil {
				t.Fatal(err)
			}
			if rec == nil {
				break
			}
			values = append(values, fmt.Sprintf("%d:%s", rec.offset, rec.value))
		}
	}
	return values, next
}

func TestBatches(t *testing.T) {
	t.Parallel()
	compacted := data(10, "a", "b", "c", "d")
	compacted.records = slices.Delete(compacted.records, 1, 4)
	nothingLeft := testBatch{base: 20, lastDelta: 4, producer: -1}
	for _, c := range []struct {
		name    string
		records []byte
		aborted []transaction
		offset  int64
		want    string
		next    int64
	}{
		{"nothing", nil, nil, 5, "", 5},
		{"two batches", encodeAll(data(5, "a", "b"), data(7, "c")), nil, 5, "5:a 6:b 7:c", 8},
		{"the first begins earlier", encodeAll(data(3, "a", "b", "c"), data(6, "d")), nil, 5, "5:c 6:d", 7},
		{"a whole batch before", encodeAll(data(3, "a"), data(4, "b")), nil, 4, "4:b", 5},
		{"compaction has left the first", encodeAll(compacted), nil, 10, "10:a", 14},
		{"compaction has left none", encodeAll(nothingLeft), nil, 20, "", 25},
		{"a gap between", encodeAll(data(1, "a"), data(9, "b")), nil, 1, "1:a 9:b", 10},
		{"cut off", encodeAll(data(1, "a"), data(2, "b"))[:100], nil, 1, "1:a", 2},
		{"committed", encodeAll(inTransaction(9, data(1, "a")), marker(2, 9, true), data(3, "b")), nil, 1, "1:a 3:b", 4},
		{"aborted", encodeAll(inTransaction(9, data(1, "a")), marker(2, 9, false), data(3, "b")),
			[]transaction{{9, 1}}, 1, "3:b", 4},
		{"aborted, then committed", encodeAll(inTransaction(9, data(1, "a")), marker(2, 9, false), inTransaction(9, data(3, "b")), marker(4, 9, true)),
			[]transaction{{9, 1}}, 1, "3:b", 5},
		{"committed, then aborted", encodeAll(inTransaction(9, data(1, "a")), marker(2, 9, true), inTransaction(9, data(3, "b")), marker(4, 9, false)),
			[]transaction{{9, 3}}, 1, "1:a", 5},
		{"interleaved, listed out of order", encodeAll(
			inTransaction(8, data(1, "a")), inTransaction(9, data(2, "b")), data(3, "plain"), marker(4, 8, false),
			inTransaction(9, data(5, "c")), marker(6, 9, true), inTransaction(8, data(7, "d")), marker(8, 8, false)),
			[]transaction{{8, 7}, {8, 1}}, 1, "2:b 3:plain 5:c", 9},
		{"the abort began earlier", encodeAll(inTransaction(9, data(5, "a", "b")), marker(7, 9, false)),
			[]transaction{{9, 1}}, 6, "", 8},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			values, next := read(t, &fetched{records: c.records, aborted: c.aborted}, c.offset)
			if got := strings.Join(values, " "); got != c.want || next != c.next {
				t.Errorf("got %q, on at %d; want %q, %d", got, next, c.want, c.next)
			}
		})
	}
}

func TestBadBatches(t *testing.T) {
	t.Parallel()
	flipped := data(1, "value").encode()
	flipped[len(flipped)-2] ^= 1
	old := data(1, "value").encode()
	old[magicAt] = 1
	unknown := data(1, "value")
	unknown.attributes = 7
	beyond := data(1, "value")
	beyond.records[0].delta = 5
	twice := data(1, "a", "b")
	twice.records[1].delta = 0
	for _, c := range []struct {
		name    string
		records []byte
		want    string
	}{
		{"an offset twice", twice.encode(), "not above"},
		{"damaged", flipped, "checksum"},
		{"an old format", old, "message format 1"},
		{"an unknown codec", unknown.encode(), "unknown codec 7"},
		{"only a part", data(1, "value").encode()[:50], "no whole batch"},
		{"an offset beyond its batch", beyond.encode(), "beyond the last"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			bs, next, err := (&fetched{records: c.records}).batches(1)
			if err == nil {
				err = bs[0].expand(1 << 20)
			} else if next != 1 {
				t.Errorf("goes on at %d", next)
			}
			for r := (&record{}); r != nil && err == nil; {
				r, err = bs[0].next()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error = %v, want %q", err, c.want)
			}
			// What is whole comes first.
			good := append(data(0, "good").encode(), c.records...)
			if value := first(t, &fetched{records: good}); value != "good" {
				t.Errorf("before it comes %q", value)
			}
		})
	}
}

// first returns the first value of what is fetched from offset 0 on.
func first(t *testing.T, r *fetched) string {
	t.Helper()
	bs, _, _ := r.batches(0) // the error is of what comes later
	if len(bs) == 0 {
		t.Fatal("there is no batch")
	}
	rec, err := bs[0].next()
	if err != nil || rec == nil {
		t.Fatalf("the first record is %v, %v", rec, err)
	}
	return string(rec.value)
}

func TestBatchTime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		attributes int16
		first, max int64
		want       int64
	}{{0, 1000, 9000, 1005}, {appendTime, 1000, 9000, 9000}, {0, -1, -1, 0}} {
		b := testBatch{attributes: c.attributes, first: c.first, max: c.max, records: []testRecord{{value: []byte{}}}}
		if c.first > 0 {
			b.records[0].timeDelta = 5
		}
		bs, _, err := (&fetched{records: b.encode()}).batches(0)
		if err != nil {
			t.Fatal(err)
		}
		r, err := bs[0].next()
		if err != nil || c.want == 0 && !r.time.IsZero() || c.want != 0 && r.time.UnixMilli() != c.want {
			t.Errorf("the time is %v (%v), want %d", r.time, err, c.want)
		}
	}
}

// answer encodes what a broker answers.
func answer(version int16, code int16, records []byte) []byte {
	a := binary.BigEndian.AppendUint32(nil, correlation)
	a = append(a, 0, 0, 0, 0) // throttle
	if version >= 7 {
		a = append(a, 0, 0, 0, 0, 0, 0)
	}
	a = append(a, 0, 0, 0, 1, 0, 1, 't', 0, 0, 0, 1, 0, 0, 0, 3)
	a = binary.BigEndian.AppendUint16(a, uint16(code))
	a = binary.BigEndian.AppendUint64(a, 100)
	a = binary.BigEndian.AppendUint64(a, 90)
	if version >= 5 {
		a = binary.BigEndian.AppendUint64(a, 2)
	}
	a = binary.BigEndian.AppendUint32(a, 1)
	a = binary.BigEndian.AppendUint64(a, 9)
	a = binary.BigEndian.AppendUint64(a, 50)
	if version >= 11 {
		a = binary.BigEndian.AppendUint32(a, 4)
	}
	return append(binary.BigEndian.AppendUint32(a, uint32(len(records))), records...)
}

func TestParseFetched(t *testing.T) {
	t.Parallel()
	for version := int16(4); version <= 11; version++ {
		whole := answer(version, 6, []byte("records"))
		r, err := parseFetched(whole, version)
		if err != nil {
			t.Fatalf("version %d: %v", version, err)
		}
		if r.err != kafka.NotLeaderForPartition || r.watermark != 100 || r.stable != 90 || len(r.aborted) != 1 ||
			r.aborted[0] != (transaction{9, 50}) || string(r.records) != "records" {
			t.Errorf("version %d: %+v", version, r)
		}
		if version >= 11 != (r.replica == 4) || version >= 5 != (r.start == 2) {
			t.Errorf("version %d: replica %d, start %d", version, r.replica, r.start)
		}
		for n := range len(whole) { // never a panic
			if _, err := parseFetched(whole[:n], version); err == nil {
				t.Errorf("version %d: %d bytes of %d are accepted", version, n, len(whole))
			}
		}
	}
}

func FuzzBatches(f *testing.F) {
	f.Add(encodeAll(inTransaction(9, data(1, "a", "b")), marker(3, 9, false), data(4, "c")), int64(1))
	f.Fuzz(func(t *testing.T, records []byte, offset int64) {
		bs, next, err := (&fetched{records: records}).batches(offset)
		if err == nil && next < offset {
			t.Errorf("from %d it goes back to %d", offset, next)
		}
		for _, b := range bs {
			for r, err := b.next(); r != nil && err == nil; r, err = b.next() {
				if r.offset < b.from || r.offset > b.last {
					t.Errorf("offset %d in a batch of %d to %d", r.offset, b.from, b.last)
				}
			}
		}
	})
}
