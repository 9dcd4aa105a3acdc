package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"github.com/segmentio/kafka-go/compress"
)

// The layout of a record batch of format 2, which Kafka writes since 0.11.
const (
	batchPrefix   = 12 // base offset and length
	magicAt       = 16
	crcAt         = 17
	crcFrom       = 21 // what the checksum covers
	batchHeader   = 61
	compression   = 0x07
	appendTime    = 0x08
	transactional = 0x10
	control       = 0x20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// batch is one record batch. Its last offset tells where the next one begins,
// whatever compaction has left in it: it may be empty.
type batch struct {
	base, last int64
	epoch      int32 // of the partition's leader
	attributes int16
	first, max int64 // timestamps, in milliseconds
	producer   int64
	count      int32
	data       []byte // the records, compressed or not
	from       int64  // the first offset that was asked for
	above      int64  // the least offset of the next record
	weight     int    // in a buffer
	broken     error  // why nothing of it can be read
}

// nextBatch takes the first batch from records, and returns nil when only a
// part of one is left.
func nextBatch(records []byte) (b *batch, rest []byte, err error) {
	if len(records) < batchPrefix {
		return nil, nil, nil
	}
	size := int64(binary.BigEndian.Uint32(records[8:])) + batchPrefix
	if size > int64(len(records)) {
		return nil, nil, nil // the broker cuts off at its limit
	}
	raw, rest := records[:size], records[size:]
	if len(raw) > magicAt && raw[magicAt] < 2 {
		return nil, nil, fmt.Errorf("it has message format %d: this package reads format 2, which Kafka writes since 0.11", raw[magicAt])
	}
	if size < batchHeader {
		return nil, nil, errShort
	}
	if want, got := binary.BigEndian.Uint32(raw[crcAt:]), crc32.Checksum(raw[crcFrom:], castagnoli); want != got {
		return nil, nil, fmt.Errorf("its checksum is %08x and must be %08x: it was damaged on the disk of the broker or on the way", got, want)
	}
	return parseBatch(raw), rest, nil
}

// parseBatch reads the header of a batch that is complete.
func parseBatch(raw []byte) *batch {
	c := cursor{rest: raw}
	b := &batch{base: c.int64()}
	c.int32() // length
	b.epoch = c.int32()
	c.take(1 + 4) // format and checksum
	b.attributes = c.int16()
	b.last = b.base + int64(c.int32())
	b.first, b.max = c.int64(), c.int64()
	b.producer = c.int64()
	c.take(2 + 4) // the producer's epoch and sequence
	b.count = c.int32()
	b.data = c.rest
	return b
}

func (b *batch) is(flag int16) bool { return b.attributes&flag != 0 }

// expand decompresses the records, which must come to at most limit bytes.
func (b *batch) expand(limit int) error {
	code := compress.Compression(b.attributes & compression)
	if code == compress.None {
		return nil
	}
	codec := code.Codec()
	if codec == nil {
		return fmt.Errorf("it is compressed by the unknown codec %d", code)
	}
	reader := codec.NewReader(bytes.NewReader(b.data))
	var plain bytes.Buffer
	n, err := plain.ReadFrom(io.LimitReader(reader, int64(limit)+1))
	if err := errors.Join(err, reader.Close()); err != nil {
		return fmt.Errorf("decompress it (%s): %w", codec.Name(), err)
	}
	if n > int64(limit) {
		return fmt.Errorf("it has %d bytes, and more than %d decompressed (%s): raise Config.MaxBatchBytes", len(b.data), limit, codec.Name())
	}
	b.data = plain.Bytes()
	b.attributes &^= compression
	return nil
}

// empty makes the batch one without records: they are not for consumers.
func (b *batch) empty() {
	b.count, b.data = 0, nil
	b.attributes &^= compression
}

// abort tells whether a control batch ends a transaction by aborting it. The
// key of a control record is its version and its type.
func (b *batch) abort() bool {
	const abortMarker = 0
	r, err := b.next()
	if r == nil || err != nil {
		return false
	}
	c := cursor{rest: r.key}
	c.int16()
	return c.int16() == abortMarker && c.err == nil
}

// time returns the time of a record. Its zero value says that there is none.
func (b *batch) time(delta int64) time.Time {
	at := b.first + delta
	if b.is(appendTime) {
		at = b.max
	}
	if at < 0 {
		return time.Time{}
	}
	return time.UnixMilli(at)
}
