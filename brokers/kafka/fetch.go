package kafka

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	fetchapi "github.com/segmentio/kafka-go/protocol/fetch"
)

// fetch is one request for records of one partition. The client writes it and
// routes it to the leader; but the answer is read here, because the client's
// own decoder drops what matters: the last offset of a batch, without which
// nobody knows where to go on after an empty one, and the broker's time.
type fetch struct {
	fetchapi.Request
	clientID string
	replica  int32 // the broker to ask instead of the leader, or -1
	epoch    int32 // of the leader that wrote what is before the offset, or -1
	version  int16
	id       topicID       // of the topic; zero to ask by its name
	newest   *atomic.Int32 // the newest version that the broker knows, or 0
}

// fetched is the answer.
type fetched struct {
	err       error // the partition's
	byID      bool  // the topic was named by its id
	watermark int64 // the offset after the last that is replicated
	stable    int64 // the offset of the first that is in an open transaction
	start     int64 // the first offset of the log, or -1
	replica   int32 // the broker to ask in the leader's place, or -1
	cut       int64 // up to where the log is what was read before, or -1 when it is all
	aborted   []transaction
	records   []byte
}

// ApiKey says that this is an answer to a fetch.
//
//revive:disable-next-line:var-naming the name is the client's
func (*fetched) ApiKey() protocol.ApiKey { return protocol.Fetch }

// correlation marks an answer as that to our request. A connection has one
// request at a time, so it need not be different each time.
const correlation = 0x61636b

// maxAnswer is larger than any answer; something else than Kafka may send more.
const maxAnswer = 1 << 30

func (f *fetch) Broker(cluster protocol.Cluster) (protocol.Broker, error) {
	if broker, ok := cluster.Brokers[f.replica]; ok && f.replica >= 0 {
		return broker, nil
	}
	return f.Request.Broker(cluster)
}

// Required tells the client to leave the exchange to RawExchange.
func (f *fetch) Required(versions map[protocol.ApiKey]int16) bool {
	f.version = versions[protocol.Fetch]
	return true
}

// RawExchange writes the request and reads the answer.
func (f *fetch) RawExchange(conn io.ReadWriter) (protocol.Message, error) {
	byID, err := f.hasID(conn)
	if err != nil {
		return nil, err
	}
	if byID {
		return f.exchangeWithID(conn)
	}
	if f.version < 4 {
		return nil, fmt.Errorf("the broker is older than Kafka 0.11: it knows fetch requests up to version %d", f.version)
	}
	if err := protocol.WriteRequest(conn, f.version, correlation, f.clientID, &f.Request); err != nil {
		return nil, err
	}
	answer, err := readAnswer(conn)
	if err != nil {
		return nil, err
	}
	r, err := parseFetched(answer, f.version)
	if err != nil {
		return nil, fmt.Errorf("the answer to a fetch cannot be read: %w", err)
	}
	return r, nil
}

// parseFetched reads an answer for one partition, of version 4 to 11.
func parseFetched(answer []byte, version int16) (*fetched, error) {
	c := cursor{rest: answer}
	if id := c.int32(); id != correlation {
		return nil, fmt.Errorf("it answers the request %d", id)
	}
	c.int32() // throttle time: the broker has waited already
	if version >= 7 {
		code := c.int16()
		c.int32() // session
		if code != 0 {
			return &fetched{err: kafka.Error(code)}, nil
		}
	}
	if n := c.int32(); n != 1 && c.err == nil {
		return nil, fmt.Errorf("it has %d topics", n)
	}
	c.string()
	if n := c.int32(); n != 1 && c.err == nil {
		return nil, fmt.Errorf("it has %d partitions", n)
	}
	c.int32() // partition
	return parsePartition(&c, version)
}

func parsePartition(c *cursor, version int16) (*fetched, error) {
	r := &fetched{start: -1, replica: -1, cut: -1}
	if code := c.int16(); code != 0 {
		r.err = kafka.Error(code)
	}
	r.watermark, r.stable = c.int64(), c.int64()
	if version >= 5 {
		r.start = c.int64()
	}
	n := c.int32()
	if int64(n)*16 > int64(len(c.rest)) {
		c.fail(errShort)
	}
	for range max(n, 0) {
		r.aborted = append(r.aborted, transaction{producer: c.int64(), first: c.int64()})
	}
	if version >= 11 {
		r.replica = c.int32()
	}
	if n := c.int32(); n > 0 {
		r.records = c.take(int(n))
	}
	return r, c.err
}

// batches returns the batches from offset on, filtered, and the offset to go on
// with. An error says that the batch there cannot be read.
func (r *fetched) batches(offset int64) (bs []*batch, next int64, err error) {
	drop, rest := newFilter(r.aborted), r.records
	for next = offset; len(rest) > 0; {
		var b *batch
		if b, rest, err = nextBatch(rest); err != nil || b == nil {
			break
		}
		if b.last < next {
			continue // the answer begins with a whole batch
		}
		b.from = next
		drop.apply(b)
		bs, next = append(bs, b), b.last+1
	}
	if err == nil && len(bs) == 0 && len(r.records) > 0 {
		err = errors.New("the answer holds no whole batch")
	}
	return bs, next, err
}
