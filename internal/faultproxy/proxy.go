// Package faultproxy is a TCP proxy on loopback that fails on demand, for
// tests of what happens when a network does.
//
// It cuts connections (Cut, Refuse, CutBefore), and stalls them without
// closing them (Stall), as a firewall that forgot them does. Each of its
// methods may be called from any goroutine.
package faultproxy

import (
	"context"
	"errors"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"
)

// Proxy forwards connections to one target until the end of the test.
type Proxy struct {
	target   string
	listener net.Listener
	stop     context.CancelFunc // ends dialling and waiting
	ctx      context.Context
	running  sync.WaitGroup

	mu       sync.Mutex
	links    map[*link]struct{}
	refusing bool
	closed   bool
	flowing  chan struct{} // closed while bytes may flow
	traps    []*Trap
}

// Start starts a proxy in front of target, a host with its port. It ends with
// the test, and every connection with it.
func Start(t testing.TB, target string) *Proxy {
	t.Helper()
	var listening net.ListenConfig
	listener, err := listening.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{target: target, listener: listener, links: map[*link]struct{}{}, flowing: make(chan struct{})}
	close(p.flowing)
	p.ctx, p.stop = context.WithCancel(context.Background())
	p.running.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// InFrontOf starts a proxy in front of the server at rawURL, and returns with
// it the URL that leads through it.
func InFrontOf(t testing.TB, rawURL string) (p *Proxy, through string) {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal("the URL of the server cannot be parsed") // it may hold a password
	}
	p = Start(t, u.Host)
	u.Host = p.Addr()
	return p, u.String()
}

// Addr returns the host and port that the proxy listens on.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Cut closes every connection, both sides with a reset, and returns how many
// there were.
func (p *Proxy) Cut() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.cut()
	}
	return len(p.links)
}

// Refuse resets each new connection at once, until Accept. Those that are
// there already stay.
func (p *Proxy) Refuse() { p.setRefusing(true) }

// Accept ends Refuse.
func (p *Proxy) Accept() { p.setRefusing(false) }

func (p *Proxy) setRefusing(refusing bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusing = refusing
}

// Stall stops forwarding, in both directions and also on new connections,
// which it goes on to accept. Nothing is closed, not even when one of the
// sides closes, and nothing is lost: Resume forwards it.
func (p *Proxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.flowing:
		p.flowing = make(chan struct{})
	default: // it is stalled already
	}
}

// Resume ends Stall.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.flowing:
	default:
		close(p.flowing)
	}
}

// flow waits while the proxy is stalled.
func (p *Proxy) flow(l *link) error {
	p.mu.Lock()
	flowing := p.flowing
	p.mu.Unlock()
	select {
	case <-flowing:
		return nil
	case <-l.done:
		return net.ErrClosed
	}
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // the client has given up meanwhile
		}
		p.running.Go(func() { p.connect(client) })
	}
}

// dialTimeout is more than loopback ever needs.
const dialTimeout = 10 * time.Second

// connect joins client with a new connection to the target, and forwards until
// one of them ends. A target that cannot be reached resets the client.
func (p *Proxy) connect(client net.Conn) {
	dialer := net.Dialer{Timeout: dialTimeout}
	p.mu.Lock()
	refusing := p.refusing
	p.mu.Unlock()
	if refusing {
		reset(client)
		return
	}
	server, err := dialer.DialContext(p.ctx, "tcp", p.target)
	if err != nil {
		reset(client)
		return
	}
	l := &link{proxy: p, client: client, server: server, done: make(chan struct{})}
	if !p.add(l) {
		l.cut()
		return
	}
	defer p.remove(l)
	var both sync.WaitGroup
	both.Go(func() { l.forward(server, client, Request) })
	both.Go(func() { l.forward(client, server, Reply) })
	both.Wait()
}

func (p *Proxy) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.links[l] = struct{}{}
	return true
}

func (p *Proxy) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// close ends everything and waits for it.
func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listener.Close()
	p.stop()
	p.Cut()
	p.running.Wait()
}
