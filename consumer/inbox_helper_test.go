package consumer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/ackafter/ackafter/consumer"
)

// Tx is a transaction of memInbox. Its effects are kept when it is committed.
type Tx struct {
	in *memInbox
	m  *consumer.Message

	mu      sync.Mutex
	effects []string
	ended   bool
}

var errTxEnded = errors.New("the transaction has ended")

// Do is a statement.
func (tx *Tx) Do(effect string) error {
	if err := tx.in.faultAt(atStatement, tx.m); err != nil {
		return err
	}
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.ended {
		return errTxEnded
	}
	tx.effects = append(tx.effects, effect)
	return nil
}

func (tx *Tx) end() []string {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	tx.ended = true
	return tx.effects
}

// stage is where a memInbox can be made to fail.
type stage string

const (
	atClaim     stage = "claim"
	atStatement stage = "statement"
	atCommit    stage = "commit"    // before it takes effect
	atReply     stage = "committed" // after it has taken effect
)

// memInbox is an honest inbox in memory: a second copy of a message waits for
// the first, and what a transaction did is kept on commit only.
type memInbox struct {
	mu          sync.Mutex
	rows        map[string][]byte        // by subscriber and id: the hash
	held        map[string]chan struct{} // ids in open transactions
	effects     []string                 // in the order of the commits
	connections int                      // in use now
	most        int                      // in use at once, at most
	opened      int                      // so far
	broken      []string                 // what the runner did against the contract
	fault       func(stage, *consumer.Message) error
}

func newInbox() *memInbox {
	return &memInbox{rows: make(map[string][]byte), held: make(map[string]chan struct{})}
}

// failWith sets what fails from now on; nil is nothing.
func (in *memInbox) failWith(fault func(stage, *consumer.Message) error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.fault = fault
}

// away makes every contact fail; nil ends that.
func (in *memInbox) away(err error) {
	if err == nil {
		in.failWith(nil)
		return
	}
	in.failWith(func(stage, *consumer.Message) error { return err })
}

func (in *memInbox) faultAt(s stage, m *consumer.Message) error {
	in.mu.Lock()
	fault := in.fault
	in.mu.Unlock()
	if fault == nil {
		return nil
	}
	return fault(s, m)
}

// committed returns the effects so far.
func (in *memInbox) committed() []string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clone(in.effects)
}

// sessions returns how many sessions have been used.
func (in *memInbox) sessions() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.opened
}

func (in *memInbox) mostConnections() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.most
}

// complaints returns what the runner did against the contract.
func (in *memInbox) complaints() []string {
	in.mu.Lock()
	defer in.mu.Unlock()
	all := slices.Clone(in.broken)
	if in.connections != 0 {
		all = append(all, fmt.Sprintf("%d sessions were not closed", in.connections))
	}
	for key := range in.held {
		all = append(all, "claim left open: "+key)
	}
	return all
}

func (in *memInbox) complain(format string, args ...any) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.broken = append(in.broken, fmt.Sprintf(format, args...))
}

// Process implements consumer.Inbox.
func (in *memInbox) Process(ctx context.Context, subscriber string, ms []*consumer.Message,
	apply func(context.Context, *Tx, []*consumer.Message) error) ([]consumer.Verdict, error) {
	s := &memSession{in: in, subscriber: subscriber}
	defer s.Close(ctx)
	return s.Process(ctx, ms, apply, nil)
}

// claim is an id that a transaction holds, or what its row says.
type claim struct {
	key     string
	m       *consumer.Message
	verdict consumer.Verdict // zero when the message is new
}

func (in *memInbox) claim(ctx context.Context, subscriber string, m *consumer.Message) (*claim, error) {
	if err := in.faultAt(atClaim, m); err != nil {
		return nil, err
	}
	if err := consumer.CheckID(m.ID); err != nil {
		in.complain("Process got the id %q", m.ID)
	}
	c := &claim{key: subscriber + "\x00" + m.ID, m: m}
	for {
		in.mu.Lock()
		hash, known := in.rows[c.key]
		rival, busy := in.held[c.key]
		if !known && !busy {
			in.held[c.key] = make(chan struct{})
		}
		in.mu.Unlock()
		switch {
		case known && len(hash) > 0 && len(m.Hash) > 0 && !bytes.Equal(hash, m.Hash):
			c.verdict = consumer.Mismatch
			return c, nil
		case known:
			c.verdict = consumer.Duplicate
			return c, nil
		case !busy:
			return c, nil
		}
		select {
		case <-rival:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// release ends a claim, with its row and its effects when they are committed.
func (in *memInbox) release(c *claim, commit bool, effects []string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if c.verdict != 0 {
		return
	}
	if commit {
		in.rows[c.key] = c.m.Hash
		in.effects = append(in.effects, effects...)
	}
	close(in.held[c.key])
	delete(in.held, c.key)
}

// memSession is a session that claims ahead.
type memSession struct {
	in         *memInbox
	subscriber string
	connected  bool
	ahead      *claim
	aheadErr   error
}

func (s *memSession) connect() {
	if s.connected {
		return
	}
	s.in.mu.Lock()
	defer s.in.mu.Unlock()
	s.connected = true
	s.in.connections++
	s.in.opened++
	s.in.most = max(s.in.most, s.in.connections)
}

// claimed returns the claim of m, made ahead or now.
func (s *memSession) claimed(ctx context.Context, m *consumer.Message) (*claim, error) {
	c, err := s.ahead, s.aheadErr
	s.ahead, s.aheadErr = nil, nil
	if c != nil && c.m != m {
		s.in.complain("%q was claimed ahead, and then came %q", c.m.ID, m.ID)
		s.in.release(c, false, nil)
		c = nil
	}
	if c == nil && err == nil {
		c, err = s.in.claim(ctx, s.subscriber, m)
	}
	return c, err
}

// Process implements consumer.Session.
func (s *memSession) Process(ctx context.Context, ms []*consumer.Message,
	apply func(context.Context, *Tx, []*consumer.Message) error,
	next func() []*consumer.Message) ([]consumer.Verdict, error) {
	if len(ms) != 1 {
		s.in.complain("Process got %d messages", len(ms)) // this inbox knows one at a time
	}
	s.connect()
	c, err := s.claimed(ctx, ms[0])
	if err != nil {
		return nil, err
	}
	tx := &Tx{in: s.in, m: ms[0]}
	committed := false
	defer func() { s.in.release(c, committed, tx.end()) }() // for a panic and Goexit, too
	if c.verdict == 0 {
		if err := apply(ctx, tx, ms); err != nil {
			return nil, err
		}
	}
	var ahead []*consumer.Message
	if next != nil {
		ahead = next()
	}
	if c.verdict == 0 {
		if err := s.in.faultAt(atCommit, ms[0]); err != nil {
			return nil, err
		}
		committed = true
		if err := s.in.faultAt(atReply, ms[0]); err != nil {
			return nil, err
		}
		s.in.release(c, committed, tx.end())
		c.verdict = consumer.Processed
	}
	if len(ahead) > 0 {
		s.ahead, s.aheadErr = s.in.claim(context.WithoutCancel(ctx), s.subscriber, ahead[0])
	}
	return []consumer.Verdict{c.verdict}, nil
}

// Close implements consumer.Session.
func (s *memSession) Close(context.Context) {
	if s.ahead != nil {
		s.in.release(s.ahead, false, nil)
	}
	if s.connected {
		s.in.mu.Lock()
		defer s.in.mu.Unlock()
		s.in.connections--
	}
}

// sessionInbox is a memInbox with sessions.
type sessionInbox struct{ *memInbox }

// Session implements consumer.SessionInbox.
func (in sessionInbox) Session(subscriber string) consumer.Session[*Tx] {
	return &memSession{in: in.memInbox, subscriber: subscriber}
}
