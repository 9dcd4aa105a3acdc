package rabbitmq_test

import (
	"bytes"
	"math"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/ackafter/ackafter/brokers/rabbitmq"
)

// Every type that the client can put into a header arrives readable.
func TestHeaderTypes(t *testing.T) {
	t.Parallel()
	url := brokerURL(t)
	c := newClient(t, url, nil)
	when := time.Date(2026, 2, 28, 23, 59, 58, 0, time.UTC)
	headers := []struct {
		key  string
		sent any
		want string
	}{
		{"array", []any{int32(1), "two", []any{true}}, `[1,"two",[true]]`},
		{"bool", true, "true"},
		{"byte", byte(200), "200"},
		{"bytes", []byte{0, 0xff, 'a'}, "\x00\xffa"},
		{"decimal", amqp.Decimal{Scale: 2, Value: -12345}, "-123.45"},
		{"decimal small", amqp.Decimal{Scale: 4, Value: 5}, "0.0005"},
		{"empty", "", ""},
		{"float32", float32(0.1), "0.1"},
		{"float64", 1e300, "1e+300"},
		{"int", int64(math.MinInt64), "-9223372036854775808"},
		{"int16", int16(-300), "-300"},
		{"int32", int32(70000), "70000"},
		{"int8", int8(-5), "-5"},
		{"nil", nil, ""},
		{"string", "größer\x00", "größer\x00"},
		{"table", amqp.Table{
			"b": amqp.Table{"<": nil}, "a": []byte("hi"), "d": amqp.Decimal{Scale: 1, Value: 15},
			"g": float32(0.5), "t": when,
		}, `{"a":"aGk=","b":{"<":null},"d":1.5,"g":0.5,"t":"2026-02-28T23:59:58Z"}`},
		{"time", when, "2026-02-28T23:59:58Z"},
		{"uint16", uint16(65535), "65535"},
		{"uint32", uint32(math.MaxUint32), "4294967295"},
	}
	table := amqp.Table{}
	for _, h := range headers {
		table[h.key] = h.sent
	}
	c.sendAll(amqp.Publishing{
		MessageId: "id", Type: "type", Timestamp: when, Body: []byte("body"),
		ContentType: "text/plain", CorrelationId: "correlation", Headers: table,
	})
	w := start(t, rabbitmq.Queue(url, c.queue))
	d := w.next()
	if len(d.Headers) != len(headers) {
		t.Errorf("got %d headers, want %d", len(d.Headers), len(headers))
	}
	for i, h := range headers { // they are sorted here, too
		if i < len(d.Headers) && (d.Headers[i].Key != h.key || string(d.Headers[i].Value) != h.want) {
			t.Errorf("header %d: got %s = %q, want %s = %q", i, d.Headers[i].Key, d.Headers[i].Value, h.key, h.want)
		}
	}
	if d.ID != "id" || d.Type != "type" || !d.Time.Equal(when) || d.Topic != c.queue || d.Position != "queue "+c.queue+" #1" {
		t.Errorf("got %+v", d.Message)
	}
	raw, ok := d.Raw.(*amqp.Delivery)
	if !ok || raw.ContentType != "text/plain" || raw.CorrelationId != "correlation" {
		t.Errorf("Raw is %+v", d.Raw)
	}
	d.ack(t)
}

// x-death, which the broker adds to dead letters, is an array of tables.
func TestDeathHeader(t *testing.T) {
	t.Parallel()
	url := brokerURL(t)
	dead := newClient(t, url, nil)
	c := newClient(t, url, amqp.Table{
		"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead.queue, "x-message-ttl": int32(1),
	})
	c.send("expired")
	w := start(t, rabbitmq.Queue(url, dead.queue))
	d := w.next()
	death := d.Headers.Get("x-death")
	for _, part := range []string{`[{"count":1,`, `"queue":"` + c.queue + `"`, `"reason":"expired"`, `"time":"20`} {
		if !bytes.Contains([]byte(death), []byte(part)) {
			t.Errorf("x-death is %s, without %s", death, part)
		}
	}
	d.ack(t)
}

func TestLargeAndEmptyBody(t *testing.T) {
	t.Parallel()
	url := brokerURL(t)
	c := newClient(t, url, nil)
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	c.sendAll(amqp.Publishing{Body: large}, amqp.Publishing{})
	w := start(t, rabbitmq.Queue(url, c.queue))
	d := w.next()
	if !bytes.Equal(d.Body, large) {
		t.Errorf("16 MiB were sent, %d bytes came", len(d.Body))
	}
	d.ack(t)
	d = w.next()
	if d.Body == nil || len(d.Body) != 0 {
		t.Errorf("an empty body is %v", d.Body)
	}
	if d.Headers != nil || !d.Time.IsZero() || d.ID != "" || d.Key != nil {
		t.Errorf("got %+v", d.Message)
	}
	d.ack(t)
}
