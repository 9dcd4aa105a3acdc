package consumer_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
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

// release ends a claim, with its row when that is committed.
func (in *memInbox) release(c *claim, commit bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if c.verdict != 0 {
		return
	}
	if commit {
		in.rows[c.key] = c.m.Hash
	}
	close(in.held[c.key])
	delete(in.held, c.key)
}

// claimAll claims ms, by order of their ids, so that two batches do not wait for
// each other.
func (in *memInbox) claimAll(ctx context.Context, subscriber string, ms []*consumer.Message) ([]*claim, error) {
	order := slices.Clone(ms)
	slices.SortStableFunc(order, func(a, b *consumer.Message) int { return cmp.Compare(a.ID, b.ID) })
	byMessage := make(map[*consumer.Message]*claim, len(ms))
	for i, m := range order {
		if i > 0 && m.ID == order[i-1].ID {
			byMessage[m] = byMessage[order[i-1]].copyOf(m)
			continue
		}
		c, err := in.claim(ctx, subscriber, m)
		if err != nil {
			in.releaseAll(slices.Collect(maps.Values(byMessage)), false, nil)
			return nil, err
		}
		byMessage[m] = c
	}
	claims := make([]*claim, len(ms))
	for i, m := range ms {
		claims[i] = byMessage[m]
	}
	return claims, nil
}

// copyOf is what becomes of a second message with the id of c.
func (c *claim) copyOf(m *consumer.Message) *claim {
	second := &claim{key: c.key, m: m, verdict: consumer.Duplicate}
	if len(c.m.Hash) > 0 && len(m.Hash) > 0 && !bytes.Equal(c.m.Hash, m.Hash) {
		second.verdict = consumer.Mismatch
	}
	return second
}

// releaseAll ends the claims of one transaction.
func (in *memInbox) releaseAll(claims []*claim, commit bool, effects []string) {
	if commit && len(claims) > 0 {
		in.mu.Lock()
		in.effects = append(in.effects, effects...)
		in.mu.Unlock()
	}
	for _, c := range claims {
		in.release(c, commit)
	}
}

// memSession is a session that claims ahead.
type memSession struct {
	in         *memInbox
	subscriber string
	connected  bool
	ahead      []*claim
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

// claimed returns the claims of ms, made ahead or now.
func (s *memSession) claimed(ctx context.Context, ms []*consumer.Message) ([]*claim, error) {
	ahead, err := s.ahead, s.aheadErr
	s.ahead, s.aheadErr = nil, nil
	if ahead != nil && !slices.EqualFunc(ahead, ms, func(c *claim, m *consumer.Message) bool { return c.m == m }) {
		s.in.complain("%q and others were claimed ahead, and then came %q", ahead[0].m.ID, ms[0].ID)
		s.in.releaseAll(ahead, false, nil)
		ahead = nil
	}
	if ahead == nil && err == nil {
		ahead, err = s.in.claimAll(ctx, s.subscriber, ms)
	}
	return ahead, err
}

// Process implements consumer.Session.
func (s *memSession) Process(ctx context.Context, ms []*consumer.Message,
	apply func(context.Context, *Tx, []*consumer.Message) error,
	next func() []*consumer.Message) ([]consumer.Verdict, error) {
	s.connect()
	claims, err := s.claimed(ctx, ms)
	if err != nil {
		return nil, err
	}
	var fresh []*consumer.Message
	for _, c := range claims {
		if c.verdict == 0 {
			fresh = append(fresh, c.m)
		}
	}
	tx := &Tx{in: s.in, m: ms[0]}
	committed := false
	defer func() { s.in.releaseAll(claims, committed, tx.end()) }() // for a panic and Goexit, too
	if len(fresh) > 0 {
		if err := apply(ctx, tx, fresh); err != nil {
			return nil, err
		}
	}
	var ahead []*consumer.Message
	if next != nil {
		ahead = next()
	}
	if len(fresh) > 0 {
		if err := s.in.faultAt(atCommit, ms[0]); err != nil {
			return nil, err
		}
		committed = true
		if err := s.in.faultAt(atReply, ms[0]); err != nil {
			return nil, err
		}
	}
	verdicts := make([]consumer.Verdict, len(claims))
	s.in.releaseAll(claims, committed, tx.end())
	for i, c := range claims {
		if c.verdict == 0 {
			c.verdict = consumer.Processed
		}
		verdicts[i] = c.verdict
	}
	claims = nil
	if len(ahead) > 0 {
		s.ahead, s.aheadErr = s.in.claimAll(context.WithoutCancel(ctx), s.subscriber, ahead)
	}
	return verdicts, nil
}

// Close implements consumer.Session.
func (s *memSession) Close(context.Context) {
	s.in.releaseAll(s.ahead, false, nil)
	s.ahead, s.aheadErr = nil, nil
	if s.connected {
		s.in.mu.Lock()
		defer s.in.mu.Unlock()
		s.connected = false
		s.in.connections--
	}
}

// sessionInbox is a memInbox with sessions.
type sessionInbox struct{ *memInbox }

// Session implements consumer.SessionInbox.
func (in sessionInbox) Session(subscriber string) consumer.Session[*Tx] {
	return &memSession{in: in.memInbox, subscriber: subscriber}
}
