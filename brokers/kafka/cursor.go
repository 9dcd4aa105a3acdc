package kafka

import (
	"encoding/binary"
	"errors"
)

var errShort = errors.New("it is shorter than it says")

// cursor reads Kafka's wire format from a slice. After the first mistake it
// returns zeros, and err says what it was.
type cursor struct {
	rest []byte
	err  error
}

// take returns the next n bytes, which stay those of the slice.
func (c *cursor) take(n int) []byte {
	if c.err != nil || n < 0 || n > len(c.rest) {
		c.fail(errShort)
		return nil
	}
	b := c.rest[:n:n]
	c.rest = c.rest[n:]
	return b
}

func (c *cursor) fail(err error) {
	if c.err == nil {
		c.err = err
	}
	c.rest = nil
}

func (c *cursor) int8() int8 {
	if b := c.take(1); b != nil {
		return int8(b[0])
	}
	return 0
}

func (c *cursor) int16() int16 {
	if b := c.take(2); b != nil {
		return int16(binary.BigEndian.Uint16(b))
	}
	return 0
}

func (c *cursor) int32() int32 {
	if b := c.take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (c *cursor) int64() int64 {
	if b := c.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

// varint reads a number in zigzag encoding.
func (c *cursor) varint() int64 {
	v, n := binary.Varint(c.rest)
	if n <= 0 {
		c.fail(errShort)
		return 0
	}
	c.rest = c.rest[n:]
	return v
}

// varbytes reads bytes behind their length; nil for null, never for empty.
func (c *cursor) varbytes() []byte {
	n := c.varint()
	if n == -1 {
		return nil
	}
	if n < -1 || n > int64(len(c.rest)) {
		c.fail(errShort)
		return nil
	}
	return c.take(int(n))
}

// string reads a string behind a length of 16 bits.
func (c *cursor) string() string { return string(c.take(int(c.int16()))) }
