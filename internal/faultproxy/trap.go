package faultproxy

import "bytes"

// Direction is where bytes go.
type Direction uint8

// The two directions.
const (
	Request Direction = iota // from the client to the server
	Reply                    // from the server to the client
)

// Trap is set by CutBefore and springs once.
type Trap struct {
	direction Direction
	needle    []byte
	sprung    chan struct{}
}

// Sprung is closed once the trap has cut its connection.
func (s *Trap) Sprung() <-chan struct{} { return s.sprung }

// CutBefore sets a trap: the first connection on which needle comes along in
// the given direction is cut in its place. The chunk that holds the end of
// needle is not forwarded, so the receiver never sees all of it. Bytes that
// were forwarded before the call do not count.
//
// PostgreSQL's reply to a commit holds "COMMIT\x00".
func (p *Proxy) CutBefore(d Direction, needle string) *Trap {
	s := &Trap{direction: d, needle: []byte(needle), sprung: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.traps = append(p.traps, s)
	return s
}

// springs tells whether a trap cuts the connection in place of chunk, and
// removes that trap.
func (p *Proxy) springs(d Direction, chunk []byte, matchers map[*Trap]*matcher) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, s := range p.traps {
		if s.direction != d {
			continue
		}
		m := matchers[s]
		if m == nil {
			m = &matcher{needle: s.needle}
			matchers[s] = m
		}
		if m.found(chunk) {
			p.traps = append(p.traps[:i:i], p.traps[i+1:]...)
			close(s.sprung)
			return true
		}
	}
	return false
}

// matcher finds a needle in a stream, across the borders of its chunks.
type matcher struct {
	needle []byte
	tail   []byte // of what came before: one byte less than the needle
}

func (m *matcher) found(chunk []byte) bool {
	seen := append(m.tail, chunk...)
	if bytes.Contains(seen, m.needle) {
		return true
	}
	m.tail = bytes.Clone(seen[max(0, len(seen)-len(m.needle)+1):])
	return false
}
