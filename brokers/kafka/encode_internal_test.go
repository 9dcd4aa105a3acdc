package kafka

import (
	"encoding/binary"
	"hash/crc32"
)

// testBatch is a record batch to encode.
type testBatch struct {
	base       int64
	lastDelta  int32
	attributes int16
	first, max int64
	producer   int64
	records    []testRecord
}

type testRecord struct {
	delta      int64 // from the batch's base
	timeDelta  int64
	key, value []byte
}

func (b testBatch) encode() []byte {
	var body []byte
	for _, r := range b.records {
		var rec []byte
		rec = append(rec, 0)
		rec = binary.AppendVarint(rec, r.timeDelta)
		rec = binary.AppendVarint(rec, r.delta)
		for _, field := range [][]byte{r.key, r.value} {
			if field == nil {
				rec = binary.AppendVarint(rec, -1)
				continue
			}
			rec = append(binary.AppendVarint(rec, int64(len(field))), field...)
		}
		rec = binary.AppendVarint(rec, 0) // headers
		body = append(binary.AppendVarint(body, int64(len(rec))), rec...)
	}
	covered := binary.BigEndian.AppendUint16(nil, uint16(b.attributes))
	covered = binary.BigEndian.AppendUint32(covered, uint32(b.lastDelta))
	covered = binary.BigEndian.AppendUint64(covered, uint64(b.first))
	covered = binary.BigEndian.AppendUint64(covered, uint64(b.max))
	covered = binary.BigEndian.AppendUint64(covered, uint64(b.producer))
	covered = append(covered, make([]byte, 2+4)...) // epoch, sequence
	covered = binary.BigEndian.AppendUint32(covered, uint32(len(b.records)))
	covered = append(covered, body...)

	raw := binary.BigEndian.AppendUint64(nil, uint64(b.base))
	raw = binary.BigEndian.AppendUint32(raw, uint32(4+1+4+len(covered)))
	raw = binary.BigEndian.AppendUint32(raw, 7) // leader epoch
	raw = append(raw, 2)                        // format
	raw = binary.BigEndian.AppendUint32(raw, crc32.Checksum(covered, castagnoli))
	return append(raw, covered...)
}

// data is a batch of n records with values.
func data(base int64, values ...string) testBatch {
	b := testBatch{base: base, lastDelta: int32(len(values) - 1), producer: -1}
	for i, v := range values {
		b.records = append(b.records, testRecord{delta: int64(i), value: []byte(v)})
	}
	return b
}

// inTransaction makes b part of one.
func inTransaction(producer int64, b testBatch) testBatch {
	b.producer, b.attributes = producer, b.attributes|transactional
	return b
}

// marker ends a transaction.
func marker(base, producer int64, commit bool) testBatch {
	kind := byte(0)
	if commit {
		kind = 1
	}
	return testBatch{base: base, producer: producer, attributes: transactional | control, records: []testRecord{
		{key: []byte{0, 0, 0, kind}, value: make([]byte, 6)},
	}}
}

func encodeAll(bs ...testBatch) []byte {
	var all []byte
	for _, b := range bs {
		all = append(all, b.encode()...)
	}
	return all
}
