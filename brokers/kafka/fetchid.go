package kafka

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	fetchapi "github.com/segmentio/kafka-go/protocol/fetch"
)

// fetchWithID is the version of a fetch that names the topic by its id (Kafka
// 3.1). Then no answer holds messages of another topic of the same name, not
// even when the topic is made again while the answer is on its way: the broker
// returns UnknownTopicID. kafka-go knows the versions before.
const fetchWithID = 13

// hasID tells whether the fetch can name the topic by its id on this
// connection.
func (f *fetch) hasID(conn io.ReadWriter) (bool, error) {
	if f.id == (topicID{}) {
		return false, nil
	}
	if f.newest.Load() == 0 {
		newest, err := newestVersion(conn, protocol.Fetch, f.clientID)
		if err != nil {
			return false, err
		}
		f.newest.Store(int32(newest))
	}
	return f.newest.Load() >= fetchWithID, nil
}

// exchangeWithID writes the request and reads the answer.
func (f *fetch) exchangeWithID(conn io.ReadWriter) (protocol.Message, error) {
	if _, err := conn.Write(f.encodeWithID()); err != nil {
		return nil, err
	}
	answer, err := readAnswer(conn)
	if err != nil {
		return nil, err
	}
	r, err := parseFetchedWithID(answer, f.id)
	if err != nil {
		return nil, fmt.Errorf("the answer to a fetch cannot be read: %w", err)
	}
	return r, nil
}

// encodeWithID encodes the request in version 13.
func (f *fetch) encodeWithID() []byte {
	b := beginRequest(protocol.Fetch, fetchWithID, f.clientID)
	b = appendInt32s(b, f.ReplicaID, f.MaxWaitTime, f.MinBytes, f.MaxBytes)
	b = append(b, byte(f.IsolationLevel))
	b = appendInt32s(b, f.SessionID, f.SessionEpoch)
	b = appendCount(b, 1)
	b = append(b, f.id[:]...)
	b = appendCount(b, 1)
	b = appendPartition(b, f.Topics[0].Partitions[0], f.epoch)
	b = append(b, 0)      // tags of the topic
	b = appendCount(b, 0) // topics to forget
	b = appendCount(b, len(f.RackID))
	b = append(b, f.RackID...)
	return endRequest(append(b, 0))
}

func appendPartition(b []byte, p fetchapi.RequestPartition, epoch int32) []byte {
	b = appendInt32s(b, p.Partition, p.CurrentLeaderEpoch)
	b = binary.BigEndian.AppendUint64(b, uint64(p.FetchOffset))
	b = appendInt32s(b, epoch) // of what was fetched last: the broker compares it with its log
	b = binary.BigEndian.AppendUint64(b, uint64(p.LogStartOffset))
	b = appendInt32s(b, p.PartitionMaxBytes)
	return append(b, 0) // tags
}

func appendInt32s(b []byte, values ...int32) []byte {
	for _, v := range values {
		b = binary.BigEndian.AppendUint32(b, uint32(v))
	}
	return b
}

// parseFetchedWithID reads an answer of version 13 for one partition.
func parseFetchedWithID(answer []byte, id topicID) (*fetched, error) {
	c := cursor{rest: answer}
	if got := c.int32(); got != correlation {
		return nil, fmt.Errorf("it answers the request %d", got)
	}
	c.tags()
	c.int32() // throttle time: the broker has waited already
	code := c.int16()
	c.int32() // session
	if code != 0 && c.err == nil {
		return &fetched{err: kafka.Error(code)}, nil
	}
	if n := c.count(); n != 1 && c.err == nil {
		return nil, fmt.Errorf("it has %d topics", n)
	}
	if got := c.topicID(); got != id && c.err == nil {
		return nil, fmt.Errorf("it is of the topic with the id %v, and not %v", got, id)
	}
	if n := c.count(); n != 1 && c.err == nil {
		return nil, fmt.Errorf("it has %d partitions", n)
	}
	c.int32() // partition
	r := &fetched{byID: true, cut: -1}
	if code := c.int16(); code != 0 {
		r.err = kafka.Error(code)
	}
	r.watermark, r.stable, r.start = c.int64(), c.int64(), c.int64()
	for range c.count() {
		r.aborted = append(r.aborted, transaction{producer: c.int64(), first: c.int64()})
		c.tags()
	}
	r.replica = c.int32()
	r.records = c.compact()
	c.tagged(func(tag uint64, value []byte) {
		if tag == 0 { // where the log differs from what was read
			v := cursor{rest: value}
			v.int32() // the epoch there
			r.cut = v.int64()
		}
	})
	for range 2 { // of topic and answer
		c.tags()
	}
	return r, c.err
}
