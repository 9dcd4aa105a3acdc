package e2e

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
)

func TestMismatchIsSetAside(t *testing.T) {
	t.Parallel()
	onBrokers(t, func(t *testing.T, w *world, f feed) {
		f.publish(message("a", "one"))
		told := newTold()
		p := f.parts()
		p.OnSetAside = told.note
		k := w.start(p)
		w.requireSettled("a")
		f.publish(message("a", "two"), message("a", "two"), message("b", "one"))
		eventually(t, "the queue has moved on", func() bool { return w.db.Processed(t) == 3 })
		eventually(t, "its redelivery is a duplicate", func() bool { return w.log.count(lineDuplicate) == 1 })
		f.stopDrained(k)
		id := fmt.Sprintf("a#%x", sha256.Sum256([]byte("two")))[:2+32]
		require.Equal(t, []string{id + " mismatch 0 for good"}, w.aside())
		require.Equal(t, []string{id + " mismatch"}, told.all())
		require.Equal(t, 2, w.effects())
		w.requireOneEffect("a", 1)
		w.requireOneEffect("b", 1)
	})
}

func TestMismatchIsADuplicateWhenNothingIsCompared(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.q.publish(amqp.Publishing{MessageId: "a", Body: []byte("one")}, amqp.Publishing{MessageId: "a", Body: []byte("two")})
	p := w.parts()
	p.Hash = consumer.HashNothing
	k := w.start(p)
	eventually(t, "a duplicate", func() bool { return w.log.count(lineDuplicate) == 1 })
	k.stop()
	w.requireEffects("a")
	w.q.requireReady(0)
	require.Zero(t, w.setAside())
}

func TestUnidentifiedIsSetAside(t *testing.T) {
	t.Parallel()
	header := consumer.HeaderID("id")
	for name, c := range map[string]struct {
		message amqp.Publishing
		from    consumer.IDFunc
		says    string
	}{
		"none":                 {amqp.Publishing{}, nil, "it is empty; let the producer set one"},
		"no header":            {amqp.Publishing{MessageId: "m"}, header, `it has none of the headers ["id"]`},
		"empty":                {amqp.Publishing{Headers: amqp.Table{"id": ""}}, header, "it is empty; let the producer set one"},
		"void":                 {amqp.Publishing{Headers: amqp.Table{"id": nil}}, header, "it is empty; let the producer set one"},
		"NUL":                  {amqp.Publishing{MessageId: "a\x00b"}, nil, "it holds a NUL byte"},
		"invalid UTF-8":        {amqp.Publishing{MessageId: "a\xff"}, nil, "it is not valid UTF-8"},
		"513 bytes":            {amqp.Publishing{Headers: amqp.Table{"id": strings.Repeat("x", 513)}}, header, "it has 513 bytes, more than 512"},
		"invalid in a header":  {amqp.Publishing{Headers: amqp.Table{"id": []byte("a\xff")}}, header, "it is not valid UTF-8"},
		"half of a code point": {amqp.Publishing{Headers: amqp.Table{"id": strings.Repeat("é", 256)[:511]}}, header, "it is not valid UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			c.message.Body = []byte("body\x00")
			w.q.publish(c.message, amqp.Publishing{MessageId: "next", Headers: amqp.Table{"id": "next"}})
			told := newTold()
			p := w.parts()
			p.MessageID, p.OnSetAside = c.from, told.note
			k := w.start(p)
			eventually(t, "the queue has moved on", func() bool { return w.db.Processed(t) == 2 })
			k.stop()
			w.q.requireReady(0)
			w.requireOneEffect("next", 1)
			require.Equal(t, 1, w.effects())
			require.Len(t, told.all(), 1)
			require.Regexp(t, "^unidentified:[A-Z2-7]+ unidentified$", told.all()[0])
			require.Equal(t, 1, w.db.Int(t, `select count(*) from %s.failed_messages
				where reason = 'unidentified' and attempts = 0 and next_attempt_at is null and body = $1 and error like '%%' || $2 || '%%'`,
				c.message.Body, c.says))
		})
	}
}

// In Kafka its place is its id, so that it is set aside once.
func TestUnidentifiedOfKafkaIsSetAsideOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := newKafkaFeed(t, w)
	f.publish(&consumer.Message{Body: []byte("no id")}, message("next", "x"))
	p := f.parts()
	p.Source = &neverAcks{p.Source}
	k := w.start(p)
	eventually(t, "set aside", func() bool { return w.db.Processed(t) == 2 })
	k.stop()
	k = w.start(f.parts())
	eventually(t, "both delivered again", func() bool { return w.log.count(lineDuplicate) == 2 })
	f.stopDrained(k)
	require.Len(t, w.aside(), 1)
	require.Regexp(t, "^unidentified:"+f.topic.Name+"~.*/0@0 unidentified 0 for good$", w.aside()[0])
	w.requireOneEffect("next", 1)
}

// neverAcks is a source whose acknowledgements get lost.
type neverAcks struct{ consumer.Source }

// Run implements consumer.Source.
func (n *neverAcks) Run(ctx context.Context, serve func(context.Context, consumer.Stream) error) error {
	return n.Source.Run(ctx, func(ctx context.Context, s consumer.Stream) error { return serve(ctx, deafStream{s}) })
}

type deafStream struct{ consumer.Stream }

// Ack implements consumer.Stream.
func (deafStream) Ack(context.Context, ...*consumer.Message) error { return nil }

func TestLongestIDIsProcessed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := strings.Repeat("é", 256) // 512 bytes
	w.q.publish(amqp.Publishing{Headers: amqp.Table{"id": id}}, amqp.Publishing{Headers: amqp.Table{"id": id}})
	p := w.parts()
	p.MessageID = consumer.HeaderID("id")
	k := w.start(p)
	eventually(t, "both copies settled", func() bool { return w.log.count("ackafter.verdict=") == 2 })
	k.stop()
	w.requireEffects(id)
	w.q.requireReady(0)
}
