package brokertest

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/ackafter/ackafter/consumer"
)

func testDelivery(t *testing.T, h Harness) {
	const keys, each = 5, 100
	var ms []*consumer.Message
	for i := range keys * each {
		ms = append(ms, &consumer.Message{
			Key:  fmt.Appendf(nil, "key %d", i%keys),
			Body: fmt.Appendf(nil, "%d of key %d", i/keys, i%keys),
		})
	}
	h.publish(t, ms...)
	w := start(t, h)
	next := map[string]int{}
	pointers := map[*consumer.Message]bool{}
	for range ms {
		d := w.next()
		key := string(d.Key)
		if want := fmt.Sprintf("%d of %s", next[key], key); string(d.Body) != want {
			t.Fatalf("messages with one key must arrive in order, each once: got %q, want %q", d.Body, want)
		}
		next[key]++
		if pointers[d.Message] {
			t.Fatalf("each delivery must be a Message of its own: %s came twice at one address", d.Position)
		}
		pointers[d.Message] = true
		if d.Position == "" || d.Attempt != 1 || d.stream.Name() == "" {
			t.Errorf("Position must be set, Attempt be 1, and the stream have a name: %q, %d, %q", d.Position, d.Attempt, d.stream.Name())
		}
		ack(t, d)
	}
	w.stop()
}

func testBodies(t *testing.T, h Harness) {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	sent := [][]byte{{}, every, bytes.Repeat(every, 4096), []byte("last")}
	for _, body := range sent {
		h.publish(t, &consumer.Message{Key: []byte("key"), Body: body})
	}
	w := start(t, h)
	for _, body := range sent {
		d := w.next()
		if !bytes.Equal(d.Body, body) {
			t.Errorf("Message.Body must be what was sent, byte for byte: sent %d bytes, got %d", len(body), len(d.Body))
		}
		if d.Body == nil {
			t.Error("Message.Body of an empty message must be empty, but not nil: nil is a Kafka tombstone")
		}
		ack(t, d)
	}
	w.stop()
}

func testProperties(t *testing.T, h Harness) {
	sent := text("body")
	sent.ID, sent.Type, sent.Time = "the id ü", "order.placed", time.Date(2026, 2, 28, 23, 59, 58, 987654321, time.UTC)
	h.publish(t, sent)
	w := start(t, h)
	d := w.next()
	if h.Features.ID && d.ID != sent.ID {
		t.Errorf("Message.ID must be the broker's id property: got %q, want %q", d.ID, sent.ID)
	}
	if h.Features.Type && d.Type != sent.Type {
		t.Errorf("Message.Type must be the broker's type property: got %q, want %q", d.Type, sent.Type)
	}
	if want := sent.Time.Truncate(max(h.Features.Time, 1)); h.Features.Time > 0 && !d.Time.Equal(want) {
		t.Errorf("Message.Time must be the producer's: got %v, want %v", d.Time, want)
	}
	if h.Features.Redelivered && d.Redelivered {
		t.Error("Message.Redelivered must be false on the first delivery")
	}
	if s, ok := h.Source.(consumer.SystemNamer); ok && s.System() == "" {
		t.Error("System must return the broker's name, see consumer.SystemNamer")
	}
	ack(t, d)
	w.stop()
}

func testHeaders(t *testing.T, h Harness) {
	if !h.Features.Headers {
		t.Log("nothing to test: Features.Headers is not declared")
		return
	}
	sent := text("body")
	sent.Headers = consumer.Headers{
		{Key: "a-text", Value: []byte("größer")},
		{Key: "b-bytes", Value: []byte{0, 1, 0xfe, 0xff}},
		{Key: "c-empty", Value: []byte{}},
	}
	h.publish(t, sent)
	w := start(t, h)
	d := w.next()
	for _, want := range sent.Headers {
		got, found := d.Headers.Lookup(want.Key)
		if !found || !bytes.Equal(got, want.Value) {
			t.Errorf("Message.Headers must hold %s = %q: got %q, %v", want.Key, want.Value, got, found)
		}
	}
	ack(t, d)
	w.stop()
}
