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
	s, ms, deliveries := threeDelivered(t)
	release := func(f *flush, tag uint64) { f.released = append(f.released, tag) }
	_, err := s.enqueue([]*consumer.Message{ms[0], ms[2]}, ack)
	require.NoError(t, err)
	f, err := s.enqueue(ms[1:2], release)
	require.NoError(t, err)
	w := newAckWriter(s)
	defer w.late.Stop()
	w.flush(true)
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

// An acknowledgement waits for those before it, and is written with them.
func TestAcksAboveAGapWait(t *testing.T) {
	s, ms, _ := threeDelivered(t)
	w := newAckWriter(s)
	defer w.late.Stop()
	for _, step := range []struct{ message, waiting int }{{2, 1}, {1, 2}, {0, 0}} {
		_, err := s.enqueue(ms[step.message:step.message+1], ack)
		require.NoError(t, err)
		w.flush(false)
		require.Len(t, w.waiting, step.waiting)
	}
}

func ack(f *flush, tag uint64) { f.tags = append(f.tags, tag) }

// threeDelivered returns a stream with three messages of its queue, which nobody
// acknowledges but the test.
func threeDelivered(t *testing.T) (*stream, []*consumer.Message, <-chan amqp.Delivery) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a server; -short leaves those out")
	}
	url, err := servers.AMQPURL()
	require.NoError(t, err)
	conn, err := amqp.Dial(url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	require.NoError(t, err)
	q, err := ch.QueueDeclare("", false, true, true, false, nil)
	require.NoError(t, err)
	for _, body := range []string{"a", "b", "c"} {
		require.NoError(t, ch.PublishWithContext(t.Context(), "", q.Name, false, false, amqp.Publishing{Body: []byte(body)}))
	}
	deliveries, err := ch.Consume(q.Name, "", false, false, false, false, nil)
	require.NoError(t, err)

	s := newStream(Config{Queue: q.Name, Prefetch: 10}, ch) // without writeAcks, so that the test says when
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
	return s, ms, deliveries
}
