package kafkatest

import (
	"context"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ackafter/ackafter/brokers/brokertest"
	"github.com/ackafter/ackafter/brokers/kafka"
)

// Cutter opens connections that it can cut.
type Cutter struct {
	mu    sync.Mutex
	conns []net.Conn
	dead  bool
}

// Dial is for kafka.Config.
func (c *Cutter) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		_ = conn.Close()
		return nil, syscall.ECONNREFUSED
	}
	c.conns = append(c.conns, conn)
	return conn, nil
}

// Cut closes all connections.
func (c *Cutter) Cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.conns = nil
}

// Kill closes all connections, and allows no more. To the brokers that is how
// a process looks that was killed.
func (c *Cutter) Kill() {
	c.mu.Lock()
	c.dead = true
	c.mu.Unlock()
	c.Cut()
}

// Revive undoes Kill.
func (c *Cutter) Revive() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dead = false
}

// Harness is one for brokertest.
func Harness(t *testing.T, brokers []string, partitions int) brokertest.Harness {
	t.Helper()
	c := New(t, brokers, partitions)
	wire := &Cutter{}
	config := c.Config()
	config.Dial = wire.Dial
	source, err := kafka.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return brokertest.Harness{
		Source:  source,
		Publish: c.Publish,
		Disconnect: func(context.Context) error {
			wire.Cut()
			return nil
		},
		Features: brokertest.Features{Headers: true, Time: time.Millisecond},
	}
}
