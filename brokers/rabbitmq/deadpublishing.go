package rabbitmq

import (
	"fmt"
	"maps"
	"strings"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/ackafter/ackafter/consumer"
)

// What is kept of a message under other names, since the broker would act on it.
const (
	headerExpiration = "ackafter-expiration" // the property expiration: the dead letter would be dropped
	headerUserID     = "ackafter-user-id"    // the property user-id: the broker refuses that of another user
	headerCC         = "ackafter-CC"         // the header CC: the broker would send copies to those queues again
	headerBCC        = "ackafter-BCC"        // likewise
)

// What tools read that know RabbitMQ's own dead letters. The broker sets them at
// the first death, and so they are left alone where they exist.
const (
	headerFirstDeathQueue    = "x-first-death-queue"
	headerFirstDeathReason   = "x-first-death-reason"
	headerFirstDeathExchange = "x-first-death-exchange"
	deathRejected            = "rejected" // of the reasons that RabbitMQ knows, the one for a consumer's decision
)

// maxShortBytes is what AMQP allows for the name of a header, and for a property.
const maxShortBytes = 255

// deadPublishing returns what is published for f: the body, all properties and
// all headers of the delivery, with the exceptions above, persistent. Of a
// message that comes from failed_messages there is no delivery; then message-id,
// type and timestamp are those of the Message, and headers are strings, or byte
// arrays where they are not UTF-8.
func deadPublishing(f consumer.Failure) (amqp.Publishing, error) {
	m := f.Message
	var p amqp.Publishing
	if raw, ok := m.Raw.(*amqp.Delivery); ok {
		p = ofDelivery(raw)
	} else {
		p = amqp.Publishing{Headers: amqp.Table{}, MessageId: short(m.ID), Type: short(m.Type), Timestamp: m.Time, Body: m.Body}
		for _, h := range m.Headers {
			if len(h.Key) > maxShortBytes {
				return p, fmt.Errorf("rabbitmq: %w: the header %.100q of the message has a name of %d bytes, and AMQP allows %d", consumer.ErrRefused, h.Key, len(h.Key), maxShortBytes)
			}
			p.Headers[h.Key] = headerValue(h.Value)
		}
	}
	p.DeliveryMode = amqp.Persistent
	rename(p.Headers, "CC", headerCC)
	rename(p.Headers, "BCC", headerBCC)
	for _, h := range f.Headers() {
		p.Headers[h.Key] = headerValue(h.Value)
	}
	if queue := queueOf(m.Position); queue != "" {
		setDefault(p.Headers, headerFirstDeathQueue, queue)
		setDefault(p.Headers, headerFirstDeathReason, deathRejected)
	}
	if err := p.Headers.Validate(); err != nil {
		return p, fmt.Errorf("rabbitmq: %w: %w", consumer.ErrRefused, err)
	}
	return p, nil
}

func ofDelivery(d *amqp.Delivery) amqp.Publishing {
	p := amqp.Publishing{
		Headers: amqp.Table{}, ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, Priority: d.Priority,
		CorrelationId: d.CorrelationId, ReplyTo: d.ReplyTo, MessageId: d.MessageId, Timestamp: d.Timestamp,
		Type: d.Type, AppId: d.AppId, Body: d.Body,
	}
	maps.Copy(p.Headers, d.Headers)
	if d.Expiration != "" {
		p.Headers[headerExpiration] = d.Expiration
	}
	if d.UserId != "" {
		p.Headers[headerUserID] = d.UserId
	}
	setDefault(p.Headers, headerFirstDeathExchange, d.Exchange)
	return p
}

func headerValue(v []byte) any {
	if utf8.Valid(v) {
		return string(v)
	}
	return v
}

func rename(t amqp.Table, from, to string) {
	if v, ok := t[from]; ok {
		t[to] = v
		delete(t, from)
	}
}

func setDefault(t amqp.Table, key, value string) {
	if _, ok := t[key]; !ok {
		t[key] = value
	}
}

// short returns s, or nothing where a property cannot hold it.
func short(s string) string {
	if len(s) > maxShortBytes {
		return ""
	}
	return s
}

// queueOf returns the queue of a Message.Position of this package, or nothing.
func queueOf(position string) string {
	rest, ok := strings.CutPrefix(position, "queue ")
	if i := strings.LastIndex(rest, " #"); ok && i >= 0 {
		return rest[:i]
	}
	return ""
}
