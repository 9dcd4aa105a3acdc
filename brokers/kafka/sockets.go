package kafka

import (
	"context"
	"net"
	"sync"
)

// sockets are the connections of one Run. kafka-go reads from them in
// goroutines of its own, which no context reaches while an answer is awaited:
// closing the socket ends them.
type sockets struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu     sync.Mutex
	open   map[*socket]struct{}
	closed bool
	empty  chan struct{} // closed when the last one was closed by its owner
}

// socket is one of them.
type socket struct {
	net.Conn
	set  *sockets
	once sync.Once
}

func newSockets(c Config) *sockets {
	dial := c.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	return &sockets{dial: dial, open: map[*socket]struct{}{}, empty: make(chan struct{})}
}

func (s *sockets) dialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := s.dial(ctx, network, address)
	if err != nil {
		return nil, &unreachableError{err}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	c := &socket{Conn: conn, set: s}
	s.open[c] = struct{}{}
	return c, nil
}

// Close is called by the owner, kafka-go.
func (c *socket) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { c.set.forget(c) })
	return err
}

func (s *sockets) forget(c *socket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
	if s.closed && len(s.open) == 0 {
		close(s.empty)
	}
}

// close closes all sockets, and waits until their owners have noticed, or ctx
// ends.
func (s *sockets) close(ctx context.Context) {
	s.mu.Lock()
	if len(s.open) == 0 {
		close(s.empty)
	}
	s.closed = true
	for c := range s.open {
		_ = c.Conn.Close()
	}
	s.mu.Unlock()
	select {
	case <-s.empty:
	case <-ctx.Done():
	}
}
