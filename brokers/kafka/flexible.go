package kafka

import (
	"encoding/binary"

	"github.com/segmentio/kafka-go/protocol"
)

// What follows is Kafka's "flexible" encoding (KIP-482), which newer versions
// of a request have: lengths are unsigned varints, one more than they say so
// that zero is null, and everything ends with fields that have tags.

// uvarint reads an unsigned number.
func (c *cursor) uvarint() uint64 {
	v, n := binary.Uvarint(c.rest)
	if n <= 0 {
		c.fail(errShort)
		return 0
	}
	c.rest = c.rest[n:]
	return v
}

// count reads how many elements an array has, each of at least one byte; none
// for null.
func (c *cursor) count() int {
	n := c.uvarint()
	if n == 0 {
		return 0
	}
	if n-1 > uint64(len(c.rest)) {
		c.fail(errShort)
		return 0
	}
	return int(n - 1)
}

// compact reads bytes or a string; nil for null, never for empty.
func (c *cursor) compact() []byte {
	n := c.uvarint()
	if n == 0 {
		return nil
	}
	if n-1 > uint64(len(c.rest)) {
		c.fail(errShort)
		return nil
	}
	return c.take(int(n - 1))
}

func (c *cursor) topicID() (id topicID) {
	copy(id[:], c.take(len(id)))
	return id
}

// tags passes over fields that have tags.
func (c *cursor) tags() { c.tagged(func(uint64, []byte) {}) }

// tagged reads fields that have tags.
func (c *cursor) tagged(field func(tag uint64, value []byte)) {
	for n := c.uvarint(); n > 0 && c.err == nil; n-- {
		tag, size := c.uvarint(), c.uvarint()
		if size > uint64(len(c.rest)) {
			c.fail(errShort)
			return
		}
		if value := c.take(int(size)); c.err == nil {
			field(tag, value)
		}
	}
}

func appendCount(b []byte, n int) []byte { return binary.AppendUvarint(b, uint64(n)+1) }

// beginRequest begins a request in the flexible encoding, and endRequest
// completes it.
func beginRequest(key protocol.ApiKey, version int16, clientID string) []byte {
	b := make([]byte, 4, 128) // its size
	b = binary.BigEndian.AppendUint16(b, uint16(key))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	b = binary.BigEndian.AppendUint32(b, correlation)
	b = binary.BigEndian.AppendUint16(b, uint16(len(clientID))) // not compact, so that any broker can read it
	b = append(b, clientID...)
	return append(b, 0) // no tagged fields
}

func endRequest(b []byte) []byte {
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}
