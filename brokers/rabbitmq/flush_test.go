package rabbitmq

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/internal/servers"
)

// Acknowledgements and releases that happen to be written together: the
// acknowledgement of everything up to the last tag must not reach the released
// message between.
func TestReleaseInTheMidstOfAcks(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a server; -short leaves those out")
	}
	url, err := servers.AMQPURL()
	require.NoError(t, err)
	conn, err := amqp.Dial(url)
	require.NoError(t, err)
	defer conn.Close()
	ch, err := conn.Channel()
	require.NoError(t, err)
	q, err := ch.QueueDeclare("", false, true, true, false, nil)
	require.NoError(t, err)
	for _, body := range []string{"a", "b", "c"} {
		require.NoError(t, ch.PublishWithContext(t.Context(), "", q.Name, false, false, amqp.Publishing{Body: []byte(body)}))
	}
	deliveries, err := ch.Consume(q.Name, "", false, false, false, false, nil)
	require.NoError(t, err)

	s := newStream(Config{Queue: q.Name}, ch) // without writeAcks, so that the test says when
	var ms []*consumer.Message
	for range 3 {
		one := make(chan amqp.Delivery, 1)
		one <- <-deliveries
		close(one)
		s.pump(one)
		taken, err := s.take(1)
		require.NoError(t, err)
		ms = append(ms, taken...)
	}
	ack := func(f *flush, tag uint64) { f.tags = append(f.tags, tag) }
	release := func(f *flush, tag uint64) { f.released = append(f.released, tag) }
	_, err = s.enqueue([]*consumer.Message{ms[0], ms[2]}, ack)
	require.NoError(t, err)
	f, err := s.enqueue(ms[1:2], release)
	require.NoError(t, err)
	s.flush()
	require.NoError(t, f.err)

	var again amqp.Delivery
	select {
	case again = <-deliveries:
	case <-time.After(10 * time.Second):
		t.Fatal("the released message was acknowledged with the others")
	}
	require.Equal(t, "b", string(again.Body))
	require.NoError(t, again.Ack(false))
}
