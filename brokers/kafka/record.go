package kafka

import (
	"bytes"
	"fmt"
	"time"

	"github.com/ackafter/ackafter/consumer"
)

// record is one record of a batch.
type record struct {
	offset     int64
	time       time.Time
	key, value []byte // nil for null
	headers    consumer.Headers
}

// next returns the next record of the batch, or nil at its end. What it
// returns is a copy: a message that is held long must not hold the batch.
func (b *batch) next() (*record, error) {
	for b.count > 0 && b.broken == nil {
		b.count--
		c := cursor{rest: b.data}
		body := c.varbytes()
		if c.err != nil {
			return nil, b.damaged(c.err)
		}
		b.data = c.rest
		r, err := b.record(body)
		if err != nil {
			return nil, b.damaged(err)
		}
		if r != nil {
			return r, nil
		}
	}
	return nil, b.broken
}

// record decodes one record; nil when it is before what was asked for.
func (b *batch) record(body []byte) (*record, error) {
	c := cursor{rest: body}
	c.int8() // attributes, unused
	delta := c.varint()
	offset := b.base + c.varint()
	if c.err == nil && offset < b.from {
		return nil, nil
	}
	c.rest = bytes.Clone(c.rest)
	r := &record{offset: offset, time: b.time(delta), key: c.varbytes(), value: c.varbytes()}
	n := c.varint()
	if n < 0 || n > int64(len(c.rest)) {
		c.fail(errShort)
	}
	if n > 0 && c.err == nil {
		r.headers = make(consumer.Headers, n)
	}
	for i := range r.headers {
		r.headers[i] = consumer.Header{Key: string(c.varbytes()), Value: c.varbytes()}
	}
	switch {
	case c.err != nil:
		return nil, c.err
	case offset > b.last:
		return nil, fmt.Errorf("its offset %d is beyond the last of its batch", offset)
	case offset < b.above:
		return nil, fmt.Errorf("its offset %d is not above the one before", offset)
	}
	b.above = offset + 1
	return r, nil
}

// damaged notes that the rest of the batch cannot be read.
func (b *batch) damaged(err error) error {
	b.broken = fmt.Errorf("the record at offset %d or after it, in the batch at offsets %d to %d: %w", max(b.above, b.from), b.base, b.last, err)
	return b.broken
}
