package kafka

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/apiversions"
)

// topicID is what tells a topic from another of the same name, before it or
// after it. The zero one is that of a broker that knows none.
type topicID [16]byte

// String returns the form that kafka-topics prints, or nothing for the zero id.
func (id topicID) String() string {
	if id == (topicID{}) {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(id[:])
}

// topicState is what the cluster says of a topic at one moment.
type topicState struct {
	name       string
	id         topicID
	partitions int
	err        error
}

// The versions of a metadata request that tell topic ids and are known here.
// kafka-go knows those before.
const (
	metadataWithIDs = 10 // Kafka 2.8
	metadataNewest  = 12
)

// topicsRequest asks for the ids of topics. It goes past the client's own
// encoding, and past its cache: what is asked for is how things are now.
type topicsRequest struct {
	clientID string
	names    []string
}

// topicsAnswer is the answer. It is nil when the broker knows no topic ids.
type topicsAnswer struct{ topics []topicState }

// ApiKey says that this is a metadata request.
//
//revive:disable-next-line:var-naming the name is the client's
func (*topicsRequest) ApiKey() protocol.ApiKey { return protocol.Metadata }

// ApiKey says that this is an answer to a metadata request.
//
//revive:disable-next-line:var-naming the name is the client's
func (*topicsAnswer) ApiKey() protocol.ApiKey { return protocol.Metadata }

// Required tells the client to leave the exchange to RawExchange.
func (*topicsRequest) Required(map[protocol.ApiKey]int16) bool { return true }

// RawExchange asks which versions the broker knows, since the client tells
// only those that it knows itself, and then for the topics.
func (r *topicsRequest) RawExchange(conn io.ReadWriter) (protocol.Message, error) {
	newest, err := newestVersion(conn, protocol.Metadata, r.clientID)
	if err != nil {
		return nil, err
	}
	if newest < metadataWithIDs {
		return &topicsAnswer{}, nil
	}
	version := min(newest, metadataNewest)
	if _, err := conn.Write(r.encode(version)); err != nil {
		return nil, err
	}
	answer, err := readAnswer(conn)
	if err != nil {
		return nil, err
	}
	topics, err := parseTopics(answer, version)
	if err != nil {
		return nil, fmt.Errorf("the answer to a metadata request cannot be read: %w", err)
	}
	return &topicsAnswer{topics: topics}, nil
}

// newestVersion asks for the newest version of a request that the broker
// knows.
func newestVersion(conn io.ReadWriter, key protocol.ApiKey, clientID string) (int16, error) {
	answer, err := protocol.RoundTrip(conn, 0, correlation, clientID, &apiversions.Request{})
	if err != nil {
		return 0, err
	}
	known := answer.(*apiversions.Response)
	if known.ErrorCode != 0 {
		return 0, kafka.Error(known.ErrorCode)
	}
	for _, k := range known.ApiKeys {
		if protocol.ApiKey(k.ApiKey) == key {
			return k.MaxVersion, nil
		}
	}
	return 0, nil
}

// readAnswer reads one answer.
func readAnswer(conn io.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > maxAnswer {
		return nil, fmt.Errorf("the answer has %d bytes", n)
	}
	answer := make([]byte, n)
	_, err := io.ReadFull(conn, answer)
	return answer, err
}

func (r *topicsRequest) encode(version int16) []byte {
	b := beginRequest(protocol.Metadata, version, r.clientID)
	b = appendCount(b, len(r.names))
	for _, name := range r.names {
		b = append(b, make([]byte, 16)...) // no id: the name is asked for
		b = appendCount(b, len(name))
		b = append(b, name...)
		b = append(b, 0) // no tagged fields
	}
	b = append(b, 0) // never create a topic
	if version <= 10 {
		b = append(b, 0) // the cluster's authorized operations
	}
	b = append(b, 0) // the topics' authorized operations
	return endRequest(append(b, 0))
}

// parseTopics reads an answer of version 10 to 12.
func parseTopics(answer []byte, version int16) ([]topicState, error) {
	c := cursor{rest: answer}
	if id := c.int32(); id != correlation {
		return nil, fmt.Errorf("it answers the request %d", id)
	}
	c.tags()
	c.int32() // throttle time: the broker has waited already
	for range c.count() {
		c.int32() // broker
		c.compact()
		c.int32() // port
		c.compact()
		c.tags()
	}
	c.compact() // cluster
	c.int32()   // controller
	var topics []topicState
	for range c.count() {
		topics = append(topics, parseTopic(&c))
	}
	if version <= 10 {
		c.int32() // authorized operations
	}
	c.tags()
	return topics, c.err
}

func parseTopic(c *cursor) (t topicState) {
	if code := c.int16(); code != 0 {
		t.err = kafka.Error(code)
	}
	t.name = string(c.compact())
	t.id = c.topicID()
	c.int8() // internal
	t.partitions = c.count()
	for range t.partitions {
		c.take(2 + 4 + 4 + 4) // error, partition, leader and its epoch
		for range 3 {         // replicas: all, in sync, offline
			c.take(4 * c.count())
		}
		c.tags()
	}
	c.int32() // authorized operations
	c.tags()
	return t
}
