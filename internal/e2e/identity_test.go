package e2e

import (
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
)

func TestSameIDWithAnotherBodyStopsTheRunner(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.q.publish(amqp.Publishing{MessageId: "a", Body: []byte("one")})
	k := w.start(w.parts())
	w.requireSettled("a")
	w.q.publish(amqp.Publishing{MessageId: "a", Body: []byte("two")})
	err := k.wait()
	require.ErrorIs(t, err, consumer.ErrMismatch)
	requireMessageError(t, err, w.q.name, "a")
	w.requireEffects("a")
	w.q.requireReady(1)

	p := w.parts()
	p.Hash = consumer.HashNothing
	k = w.start(p)
	eventually(t, "a duplicate when nothing is compared", func() bool { return w.log.count(lineDuplicate) == 1 })
	k.stop()
	w.requireEffects("a")
	w.q.requireReady(0)
}

func requireMessageError(t *testing.T, err error, queue, id string) {
	t.Helper()
	var e *consumer.MessageError
	require.ErrorAs(t, err, &e)
	require.Equal(t, id, e.ID)
	require.Contains(t, e.Position, "queue "+queue+" #")
	require.ErrorContains(t, err, e.Position)
}

func TestUnusableIDStopsTheRunner(t *testing.T) {
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
			w.q.publish(c.message)
			p := w.parts()
			p.MessageID = c.from
			err := w.start(p).wait()
			require.ErrorIs(t, err, consumer.ErrNoID)
			require.ErrorContains(t, err, c.says)
			requireMessageError(t, err, w.q.name, c.message.MessageId)
			w.requireNoTrace()
			w.q.requireReady(1)
		})
	}
}

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
