package faultproxy

import (
	"errors"
	"io"
	"net"
	"sync"
)

// link is one connection through the proxy.
type link struct {
	proxy          *Proxy
	client, server net.Conn
	done           chan struct{} // closed by cut
	once           sync.Once
}

// cut closes both sides.
func (l *link) cut() {
	l.once.Do(func() {
		close(l.done)
		reset(l.client)
		reset(l.server)
	})
}

// reset closes c so that its peer notices at once, whatever is still under
// way.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// forward copies what comes from one side to the other. The end of one side
// ends both, as soon as bytes may flow.
func (l *link) forward(to, from net.Conn, d Direction) {
	matchers := map[*Trap]*matcher{}
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if l.proxy.flow(l) != nil {
			return
		}
		if l.proxy.springs(d, buf[:n], matchers) {
			l.cut()
			return
		}
		if _, writeErr := to.Write(buf[:n]); writeErr != nil || err != nil {
			l.end(err)
			return
		}
	}
}

// end closes both sides, after an orderly end in an orderly way.
func (l *link) end(err error) {
	if !errors.Is(err, io.EOF) {
		l.cut()
		return
	}
	l.once.Do(func() {
		close(l.done)
		_ = l.client.Close()
		_ = l.server.Close()
	})
}
