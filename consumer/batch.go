package consumer

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// BatchHandler applies several new messages inside one tx, all or none. It is
// for effects that are cheaper together: one insert from unnest, one CopyFrom.
//
// HandleBatch is called with at least one message, and at most
// Config.MaxBatch: those of a key in the order of delivery, and the keys in the
// order of their bytes. What a Handler is promised of tx,
// ctx and concurrency holds here, too: ctx is that of the whole batch.
//
// An error rolls back the batch, and each message is then handled by itself, as
// a batch of one, so that only the one to blame is tried again or set aside.
// Blame spares the others that.
type BatchHandler[Tx any] interface {
	HandleBatch(ctx context.Context, tx Tx, ms []*Message) error
}

// BatchHandlerFunc makes a function a BatchHandler.
type BatchHandlerFunc[Tx any] func(ctx context.Context, tx Tx, ms []*Message) error

// HandleBatch calls f.
func (f BatchHandlerFunc[Tx]) HandleBatch(ctx context.Context, tx Tx, ms []*Message) error {
	return f(ctx, tx, ms)
}

// batchOfOne handles a single message by a BatchHandler.
type batchOfOne[Tx any] struct{ BatchHandler[Tx] }

func (b batchOfOne[Tx]) Handle(ctx context.Context, tx Tx, m *Message) error {
	return b.HandleBatch(ctx, tx, []*Message{m})
}

// Blame marks err as the fault of m, which is one of a batch. The others then
// stay together, and only m is handled by itself; it fails there, or does not.
// An Inbox blames in this way, and a BatchHandler may. It returns nil when err
// is nil.
func Blame(m *Message, err error) error {
	if err == nil {
		return nil
	}
	return &blame{m, err}
}

type blame struct {
	m   *Message
	err error
}

func (b *blame) Error() string { return b.err.Error() }
func (b *blame) Unwrap() error { return b.err }

// Blamed returns the message that err was marked with by Blame, or nil. Of
// several marks the innermost counts, which is the cause.
func Blamed(err error) *Message {
	var m *Message
	for b := (*blame)(nil); errors.As(err, &b); err = b.err {
		m = b.m
	}
	return m
}

// BatchTx is what an inbox's Tx may implement to know which message of a batch
// a statement is for, and to gather statements.
type BatchTx[Tx any] interface {
	// For returns the transaction as the handler of m is to use it. It ends the
	// use of the one that the call before returned.
	For(m *Message) Tx
	// Flush sends what was gathered. The runner calls it when the last handler
	// of a transaction has returned, within Config.HandlerTimeout.
	Flush(ctx context.Context) error
}

// batch is what a worker handles in one transaction.
type batch struct {
	tasks []*task
	ms    []*Message // theirs
	began time.Time  // the attempt
}

func (b *batch) add(t *task) {
	b.tasks = append(b.tasks, t)
	b.ms = append(b.ms, t.m)
}

func (b *batch) reset() {
	clear(b.tasks)
	clear(b.ms)
	b.tasks, b.ms = b.tasks[:0], b.ms[:0]
}

// sort puts the messages into the order of their keys, and those of one key into
// the order of their delivery. Where a key stands for a row, all batches lock the
// rows in one order then, and none waits for another that waits for it.
func (b *batch) sort() {
	slices.SortFunc(b.tasks, func(x, y *task) int {
		return cmp.Or(bytes.Compare(x.m.Key, y.m.Key), cmp.Compare(x.number, y.number))
	})
	for i, t := range b.tasks {
		b.ms[i] = t.m
	}
}

func (b *batch) of(m *Message) *task {
	if i := slices.Index(b.ms, m); i >= 0 && m != nil {
		return b.tasks[i]
	}
	return nil
}

// fill adds to b what is ready, and then what waits behind that, as far as it may
// go together. A message that it took and that has to wait for the next batch is
// returned.
func (s *streamRun[Tx]) fill(b *batch) (misfit *task) {
	defer b.sort() // what was given back stands behind what was delivered later
	limit := s.size.now()
	fits := func(t *task) bool {
		return t.aside == nil && t.crashes == 0 && s.apart(t) == s.apart(b.tasks[0]) && t.noted == b.tasks[0].noted &&
			(t.most == 0 || t.most > len(b.tasks))
	}
	full := func() bool {
		if last := b.tasks[len(b.tasks)-1]; last.most > 0 {
			limit = min(limit, last.most)
		}
		return len(b.tasks) >= limit
	}
	for !full() {
		t := s.take()
		if t == nil {
			break
		}
		if !fits(t) {
			return t
		}
		b.add(t)
	}
	for i := 0; i < len(b.tasks) && !full(); i++ {
		if t := s.follow(b.tasks[i], fits); t != nil {
			b.add(t)
		}
	}
	return nil
}

// follow is nil where each message has to look first whether it may run at all:
// that of an earlier one of its key would come too late.
func (s *streamRun[Tx]) follow(t *task, fits func(*task) bool) *task {
	if s.runner.order != nil {
		return nil
	}
	return s.dispatcher.follow(t, fits)
}

// split hands a batch out again that came to nothing, in smaller ones. It blames
// nobody for good: whoever is at fault fails again by itself, and is counted
// there.
func (s *streamRun[Tx]) split(ctx context.Context, b *batch, res result) {
	n := len(b.tasks)
	switch res.fate {
	case contended:
		s.size.contended(n, time.Since(b.began))
	case rejected: // which is found before any work is done
	default:
		s.size.failed(n)
	}
	culprit := b.of(res.culprit)
	for _, t := range b.tasks {
		switch {
		case res.fate == contended: // the smaller, the less likely
			t.most = (n + 1) / 2
		case culprit == nil || t == culprit:
			t.most = 1
		}
	}
	s.log.split(ctx, n, res.err)
	s.giveBack(b.tasks)
}

// batchSize is how many messages a batch may have: Config.MaxBatch, and less for
// a while after one that came to nothing.
type batchSize struct {
	max     int
	mu      sync.Mutex
	reduced int           // zero while it is not
	hold    time.Duration // how long it stays, each time
	until   time.Time
}

func (z *batchSize) now() int {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.reduced != 0 {
		return z.reduced
	}
	return z.max
}

// failed notes a batch of n that came to nothing.
func (z *batchSize) failed(n int) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.reduced, z.hold = max(1, n/2), 0
}

// contended notes one that waited for others in vain. There is more to come of
// that, and more with a larger size; so the size grows again only slowly
// compared with what that has cost.
func (z *batchSize) contended(n int, cost time.Duration) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.reduced, z.hold = max(1, min(n/2, cmp.Or(z.reduced, z.max))), 10*cost
	z.until = time.Now().Add(z.hold)
}

func (z *batchSize) worked(n int) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.reduced == 0 || n < z.reduced || z.hold > 0 && time.Now().Before(z.until) {
		return
	}
	z.reduced += z.reduced/4 + 1
	if z.reduced >= z.max {
		z.reduced = 0
	}
	z.until = time.Now().Add(z.hold)
}
