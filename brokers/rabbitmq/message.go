package rabbitmq

import (
	"strconv"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/ackafter/ackafter/consumer"
)

// message maps a delivery:
//
//	ID           message-id
//	Type         type
//	Topic        the routing key
//	Key          what Config.Key returns
//	Time         timestamp, in seconds
//	Position     "queue orders #17", with the delivery tag
//	Redelivered  redelivered
//	Headers      headers, see renderHeaders
//	Raw          *amqp091.Delivery, with all the rest; it cannot be acknowledged
func (s *stream) message(d *amqp.Delivery) consumer.Message {
	m := consumer.Message{
		ID:          d.MessageId,
		Type:        d.Type,
		Topic:       d.RoutingKey,
		Body:        d.Body,
		Headers:     renderHeaders(d.Headers),
		Time:        d.Timestamp,
		Position:    s.position + strconv.FormatUint(d.DeliveryTag, 10),
		Redelivered: d.Redelivered,
		Attempt:     1,
		Raw:         d,
	}
	if s.key != nil {
		m.Key = s.key(d)
	}
	return m
}
