package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
)

func TestSmallestAndLargeBodies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bodies := map[string][]byte{
		"nothing": {},
		"NUL":     {0},
		"16 MiB":  bytes.Repeat([]byte("0123456789abcde\x00"), 1<<20),
	}
	seen := map[string][32]byte{} // by the one worker, read after it has stopped
	p := w.parts()
	effect := w.effect()
	p.Handler = consumer.HandlerFunc[pgx.Tx](func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
		seen[m.ID] = sha256.Sum256(m.Body)
		return effect(ctx, tx, m)
	})
	var all []string
	for id, body := range bodies {
		all = append(all, id)
		w.q.publish(amqp.Publishing{MessageId: id, Body: body}, amqp.Publishing{MessageId: id, Body: body})
	}
	k := w.start(p)
	eventually(t, "both copies of each settled", func() bool { return w.log.count("ackafter.verdict=") == 2*len(bodies) })
	k.stop()
	w.requireEffects(all...)
	for id, body := range bodies {
		sum := sha256.Sum256(body)
		require.Equal(t, sum, seen[id], "what the handler got of %s", id)
		require.Equal(t, 1, w.db.Int(t, "select count(*) from %s.processed_messages where message_id = $1 and payload_hash = $2", id, sum[:16]),
			"the hash of %s", id)
	}
	w.q.requireReady(0)
}

// headerCases has every type of value that AMQP knows, and how it reads as
// text.
var headerCases = []struct {
	key   string
	value any
	text  string
}{
	{"true", true, "true"},
	{"int8", int8(-8), "-8"},
	{"byte", byte(200), "200"},
	{"int16", int16(-16), "-16"},
	{"int32", int32(math.MinInt32), "-2147483648"},
	{"int64", int64(math.MaxInt64), "9223372036854775807"},
	{"float32", float32(0.25), "0.25"},
	{"float64", 1e300, "1e+300"},
	{"decimal", amqp.Decimal{Scale: 2, Value: 314}, "3.14"},
	{"string", "é\x00", "é\x00"},
	{"long", string(bytes.Repeat([]byte("x"), 70_000)), string(bytes.Repeat([]byte("x"), 70_000))},
	{"empty", "", ""},
	{"bytes", []byte{0xff, 0}, "\xff\x00"},
	{"time", time.Unix(1_700_000_000, 0), "2023-11-14T22:13:20Z"},
	{"void", nil, ""},
	{"table", amqp.Table{"a": int32(1), "b": amqp.Table{"c": "d"}}, `{"a":1,"b":{"c":"d"}}`},
	{"array", []any{int32(1), "two", nil, false}, `[1,"two",null,false]`},
}

func TestHeadersOfEveryTypeReachTheHandler(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	headers := amqp.Table{}
	for _, c := range headerCases {
		headers[c.key] = c.value
	}
	got := make(chan *consumer.Message, 1)
	p := w.parts()
	p.Handler = consumer.HandlerFunc[pgx.Tx](func(_ context.Context, _ pgx.Tx, m *consumer.Message) error {
		got <- m
		return nil
	})
	w.q.publish(amqp.Publishing{
		MessageId: "a", Type: "order", Timestamp: time.Unix(1_700_000_001, 0), Headers: headers, Body: []byte("body"),
		ContentType: "text/plain", CorrelationId: "c",
	})
	k := w.start(p)
	m := <-got
	eventually(t, "settled", func() bool { return w.log.count("ackafter.verdict=processed") == 1 })
	k.stop()
	require.Len(t, m.Headers, len(headerCases))
	raw := m.Raw.(*amqp.Delivery)
	for _, c := range headerCases {
		require.Equal(t, c.text, m.Headers.Get(c.key), c.key)
		require.Equal(t, fmt.Sprint(c.value), fmt.Sprint(raw.Headers[c.key]), "%s, as the client has it", c.key)
	}
	require.Equal(t, "order", m.Type)
	require.Equal(t, w.q.name, m.Topic)
	require.Equal(t, int64(1_700_000_001), m.Time.Unix())
	require.Equal(t, []string{"text/plain", "c"}, []string{raw.ContentType, raw.CorrelationId})
}
