package consumer

import (
	"context"
	"slices"
	"sync"
	"time"
)

// task is one message on its way from its delivery to its acknowledgement.
type task struct {
	m           *Message
	sum         digest   // what its Hash points into
	number      uint64   // by order of delivery, from 1
	most        int      // how many may be in a batch with it; zero sets no limit
	contentions int      // in a row
	outages     int      // in a row, under its handler or in its commit
	commits     int64    // of the runner, at the last of them
	aside       *Failure // as what it is to be set aside, when that was decided
	err         error    // why
	refusals    int      // how often that was refused
	noted       bool     // the attempt, with a CrashInbox
	crashes     int      // what that has counted
}

// dispatcher hands the messages of one stream to its workers: those without a
// key as they come, those with one key one after the other. A message that
// waits for its next attempt occupies its key, but no worker.
type dispatcher struct {
	limit int           // how many messages may be held
	ready chan *task    // to the workers; holds limit, so that no send blocks
	freed chan struct{} // room may have become worth using

	mu      sync.Mutex
	held    int
	added   uint64                // so far
	keys    map[string]*keyLine   // those that are occupied
	delayed map[*task]*time.Timer // those that wait for their next attempt
	closed  bool
}

// keyLine is the messages of one key that are held.
type keyLine struct {
	out     int     // ready, with a worker, or waiting for their next attempt
	waiting []*task // the later ones, in order
}

func newDispatcher(limit int) *dispatcher {
	return &dispatcher{
		limit:   limit,
		ready:   make(chan *task, limit),
		freed:   make(chan struct{}, 1),
		keys:    make(map[string]*keyLine),
		delayed: make(map[*task]*time.Timer),
	}
}

// room waits until it is worth fetching, and returns how many messages may be
// added: the workers have nothing to do, or half of the room is free. To fetch
// one message for each that is settled would cost a wake-up for each.
func (d *dispatcher) room(ctx context.Context) (int, error) {
	for {
		d.mu.Lock()
		n := d.limit - d.held
		d.mu.Unlock()
		if n > 0 && d.worthFetching(n) {
			return n, nil
		}
		select {
		case <-d.freed:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

func (d *dispatcher) worthFetching(room int) bool {
	return len(d.ready) == 0 || room >= d.limit/2
}

// wakeFetcher lets room look again. It follows everything that may make it
// worth fetching.
func (d *dispatcher) wakeFetcher() {
	select {
	case d.freed <- struct{}{}:
	default: // it is going to look anyway
	}
}

// add takes a message in. There must be room.
func (d *dispatcher) add(t *task) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held++
	d.added++
	t.number = d.added
	if len(t.m.Key) > 0 {
		if line, occupied := d.keys[string(t.m.Key)]; occupied {
			line.waiting = append(line.waiting, t)
			return
		}
		d.keys[string(t.m.Key)] = &keyLine{out: 1}
	}
	d.ready <- t
}

// next waits for a message; it returns nil once stop is closed.
func (d *dispatcher) next(stop <-chan struct{}) *task {
	select {
	case <-stop:
		return nil
	case t := <-d.ready:
		d.taken()
		return t
	}
}

// take returns a message that is ready now, or nil.
func (d *dispatcher) take() *task {
	select {
	case t := <-d.ready:
		d.taken()
		return t
	default:
		return nil
	}
}

func (d *dispatcher) taken() {
	if len(d.ready) == 0 {
		d.wakeFetcher()
	}
}

// follow returns the next message that waits behind t, for the one who has t and
// will handle it first; nil when there is none, or fits refuses it.
func (d *dispatcher) follow(t *task, fits func(*task) bool) *task {
	if len(t.m.Key) == 0 {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	line := d.keys[string(t.m.Key)]
	if len(line.waiting) == 0 || !fits(line.waiting[0]) {
		return nil
	}
	next := line.waiting[0]
	line.waiting = line.waiting[1:]
	line.out++
	return next
}

// settled lets go of messages, and of the next one of each key.
func (d *dispatcher) settled(ts ...*task) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range ts {
		d.held--
		d.leaveLine(t)
	}
	if d.worthFetching(d.limit - d.held) {
		d.wakeFetcher()
	}
}

func (d *dispatcher) leaveLine(t *task) {
	if len(t.m.Key) == 0 {
		return
	}
	key := string(t.m.Key)
	line := d.keys[key]
	switch line.out--; {
	case line.out > 0:
	case len(line.waiting) > 0:
		next := line.waiting[0]
		line.waiting, line.out = line.waiting[1:], 1
		d.ready <- next
	default:
		delete(d.keys, key)
	}
}

// giveBack hands messages out once more that one worker had, in order: of each
// key the first, and the others behind it.
func (d *dispatcher) giveBack(ts []*task) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	for i := len(ts) - 1; i >= 0; i-- {
		t := ts[i]
		if len(t.m.Key) > 0 {
			if line := d.keys[string(t.m.Key)]; line.out > 1 {
				line.out--
				line.waiting = slices.Insert(line.waiting, 0, t)
				ts[i] = nil
			}
		}
	}
	for _, t := range ts {
		if t != nil {
			d.ready <- t
		}
	}
}

// again hands the only message of a worker out once more after the wait.
func (d *dispatcher) again(t *task, wait time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	if wait <= 0 {
		d.ready <- t
		return
	}
	d.delayed[t] = time.AfterFunc(wait, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if !d.closed {
			delete(d.delayed, t)
			d.ready <- t
		}
	})
}

// close ends all waits for a next attempt. It returns the messages that nobody
// has begun, or whose next attempt is still to come, except those with a key:
// an earlier message of the key may be in a handler, and must not be overtaken.
func (d *dispatcher) close() []*Message {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	var left []*Message
	leave := func(t *task) {
		if len(t.m.Key) == 0 {
			left = append(left, t.m)
		}
	}
	for t, timer := range d.delayed {
		timer.Stop()
		leave(t)
	}
	clear(d.delayed)
	for {
		select {
		case t := <-d.ready:
			leave(t)
		default:
			return left
		}
	}
}

// counts returns how many messages are held, and how many of them wait for
// their next attempt.
func (d *dispatcher) counts() (held, delayed int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.held, len(d.delayed)
}
