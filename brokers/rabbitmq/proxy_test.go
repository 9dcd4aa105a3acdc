package rabbitmq_test

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
)

// proxy stands between a source and the broker, to cut their connections.
type proxy struct {
	listener net.Listener
	target   string
	wg       sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
}

// newProxy returns a proxy to the broker at brokerURL, and the URL to use
// instead.
func newProxy(t *testing.T, brokerURL string) (*proxy, string) {
	t.Helper()
	u, err := url.Parse(brokerURL)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener, target: u.Host}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		p.cut()
		p.wg.Wait()
	})
	u.Host = listener.Addr().String()
	return p, u.String()
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, server)
		p.mu.Unlock()
		p.wg.Go(func() { forward(client, server) })
		p.wg.Go(func() { forward(server, client) })
	}
}

func forward(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_ = to.Close()
	_ = from.Close()
}

// cut closes every connection.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}
