package kafka

import (
	"strconv"

	"github.com/ackafter/ackafter/consumer"
)

// Record is what Message.Raw holds, as a *Record: what Kafka knows of a
// message beyond what a consumer.Message has room for. The fields of the message
// are filled thus:
//
//	ID           empty: Kafka has no such property, see Config
//	Type         empty: Kafka has none, see consumer.Mux
//	Topic        the topic
//	Key          the record's key; nil for none
//	Body         the record's value; nil for a tombstone, empty for an empty one
//	Headers      the record's headers, in their order; a key may occur twice,
//	             and a null value is nil
//	Time         the record's time, in milliseconds; zero when it has none
//	Position     "orders/3@1842": topic, partition and offset
//	Redelivered  true for the first Config.Window messages after the partition
//	             was assigned to this member: those may have been delivered
//	             before, and no others. Kafka does not know more
//	Raw          *Record, which is a consumer.LogPositioner
type Record struct {
	Topic     string
	Partition int
	Offset    int64
	// TopicID is Kafka's id of the topic, as kafka-topics --describe prints it.
	// A topic that is deleted and made again has another. It is empty when the
	// brokers have no such ids: those before Kafka 2.8.
	TopicID string
	// LeaderEpoch counts how often the partition had got another leader when
	// the message was written.
	LeaderEpoch int32
	// AppendTime says that Message.Time was set by the broker when it stored
	// the message (message.timestamp.type), and not by the producer.
	AppendTime bool

	stream *stream
}

// LogPosition returns the message's place as "orders~<topic id>/3@1842". It
// stays unique when the topic is deleted and made again, which Message.Position
// does not. consumer.PositionID uses it. Without a TopicID it is an error.
func (r *Record) LogPosition() (string, error) {
	if r.TopicID == "" {
		return "", errNoTopicID
	}
	b := make([]byte, 0, 96)
	b = append(append(append(b, r.Topic...), '~'), r.TopicID...) // no topic's name has a '~'
	b = strconv.AppendInt(append(b, '/'), int64(r.Partition), 10)
	b = strconv.AppendInt(append(b, '@'), r.Offset, 10)
	return string(b), nil
}

// delivery is a message together with its record.
type delivery struct {
	message consumer.Message
	record  Record
}

// message maps a record as the comment of Record says.
func (s *stream) message(r *record, b *batch) *consumer.Message {
	d := &delivery{record: Record{
		Topic:       s.topic,
		Partition:   s.partition,
		Offset:      r.offset,
		TopicID:     s.idText,
		LeaderEpoch: b.epoch,
		AppendTime:  b.is(appendTime),
		stream:      s,
	}}
	var position [64]byte
	d.message = consumer.Message{
		Topic:    s.topic,
		Key:      r.key,
		Body:     r.value,
		Headers:  r.headers,
		Time:     r.time,
		Position: string(strconv.AppendInt(append(append(position[:0], s.name...), '@'), r.offset, 10)),
		Attempt:  1,
		Raw:      &d.record,

		Redelivered: s.doubtful > 0,
	}
	return &d.message
}
