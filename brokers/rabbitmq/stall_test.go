package rabbitmq_test

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/ackafter/ackafter/brokers/rabbitmq"
	"github.com/ackafter/ackafter/consumer"
)

// stallable is a connection whose peer can stop reading: from then on a write
// blocks until its deadline, or until the connection is closed.
type stallable struct {
	net.Conn
	stalled  atomic.Bool
	deadline atomic.Pointer[time.Time]
	closed   chan struct{}
	once     sync.Once
}

func (s *stallable) SetWriteDeadline(t time.Time) error {
	s.deadline.Store(&t)
	return s.Conn.SetWriteDeadline(t)
}

func (s *stallable) Write(p []byte) (int, error) {
	if !s.stalled.Load() {
		return s.Conn.Write(p)
	}
	var expired <-chan time.Time
	if t := s.deadline.Load(); t != nil && !t.IsZero() {
		expired = time.After(time.Until(*t))
	}
	select {
	case <-expired:
		return 0, os.ErrDeadlineExceeded
	case <-s.closed:
		return 0, net.ErrClosed
	}
}

func (s *stallable) Close() error {
	s.once.Do(func() { close(s.closed) })
	return s.Conn.Close()
}

// recordingDial returns a dial function, and one that returns what it has
// dialled last.
func recordingDial() (dial func(network, addr string) (net.Conn, error), last func() *stallable) {
	var latest atomic.Pointer[stallable]
	dial = func(network, addr string) (net.Conn, error) {
		conn, err := net.DialTimeout(network, addr, limit)
		if err != nil {
			return nil, err
		}
		s := &stallable{Conn: conn, closed: make(chan struct{})}
		latest.Store(s)
		return s, nil
	}
	return dial, latest.Load
}

func TestStalledSocketDoesNotHoldUpAckOrRun(t *testing.T) {
	t.Parallel()
	url := brokerURL(t)
	c := newClient(t, url, nil)
	c.send("one")
	dial, last := recordingDial()
	s := newSource(t, rabbitmq.Config{
		URL: url, Queue: c.queue, AMQP: amqp.Config{Dial: dial},
		WriteTimeout: time.Hour, CloseTimeout: 50 * time.Millisecond,
	})
	w := start(t, s)
	d := w.next()
	last().stalled.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := d.stream.Ack(ctx, d.Message); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Ack on a stalled socket must end with its context: %v", err)
	}
	w.stop()
	start(t, s).want("one")
}

func TestStalledSocketIsGivenUp(t *testing.T) {
	t.Parallel()
	url := brokerURL(t)
	c := newClient(t, url, nil)
	c.send("one")
	dial, last := recordingDial()
	w := start(t, newSource(t, rabbitmq.Config{
		URL: url, Queue: c.queue, AMQP: amqp.Config{Dial: dial}, BackoffMin: time.Millisecond,
		WriteTimeout: 50 * time.Millisecond, CloseTimeout: 50 * time.Millisecond,
	}))
	d := w.next()
	last().stalled.Store(true)
	if err := d.stream.Ack(t.Context(), d.Message); err == nil {
		t.Error("Ack must tell that it was not written")
	}
	w.want("one") // on a new connection
}

// The socket stalls only after the subscription was cancelled.
func TestStalledSocketDoesNotHoldUpClose(t *testing.T) {
	t.Parallel()
	url := brokerURL(t)
	c := newClient(t, url, nil)
	c.send("begun", "not begun")
	dial, last := recordingDial()
	s := newSource(t, rabbitmq.Config{
		URL: url, Queue: c.queue, AMQP: amqp.Config{Dial: dial},
		WriteTimeout: time.Hour, CloseTimeout: 50 * time.Millisecond,
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	begun, finish, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- s.Run(ctx, func(ctx context.Context, s consumer.Stream) error {
			_, err := s.Next(ctx, 1)
			close(begun)
			<-finish
			return err
		})
	}()
	<-begun
	eventually(t, "both are handed out", func() bool { return must(t, c) == 0 })
	cancel()
	eventually(t, "one is handed back", func() bool { return must(t, c) == 1 })
	last().stalled.Store(true)
	close(finish)
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(5 * time.Second): // less than the client's heartbeats would need
		t.Fatal("Run does not return")
	}
	start(t, s).want("begun", "not begun")
}
