package consumer

import (
	"context"
	"sync"
	"time"
)

// task is one message on its way from its delivery to its acknowledgement.
type task struct {
	m           *Message
	ms          [1]*Message // m, as a slice to be
	contentions int         // in a row
	aside       *Failure    // as what it is to be set aside, when that was decided
	err         error       // why
	noted       bool        // the attempt, with a CrashInbox
	crashes     int         // what that has counted
}

func newTask(m *Message) *task { return &task{m: m, ms: [1]*Message{m}} }

// dispatcher hands the messages of one stream to its workers: those without a
// key as they come, those with one key one after the other. A message that
// waits for its next attempt occupies its key, but no worker.
type dispatcher struct {
	limit int           // how many messages may be held
	ready chan *task    // to the workers; holds limit, so that no send blocks
	freed chan struct{} // room may have become worth using

	mu      sync.Mutex
	held    int
	behind  map[string][]*task    // by key that is occupied: its later messages, in order
	delayed map[*task]*time.Timer // those that wait for their next attempt
	closed  bool
}

func newDispatcher(limit int) *dispatcher {
	return &dispatcher{
		limit:   limit,
		ready:   make(chan *task, limit),
		freed:   make(chan struct{}, 1),
		behind:  make(map[string][]*task),
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
	if len(t.m.Key) > 0 {
		if waiting, occupied := d.behind[string(t.m.Key)]; occupied {
			d.behind[string(t.m.Key)] = append(waiting, t)
			return
		}
		d.behind[string(t.m.Key)] = nil
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

// settled lets go of a message, and of the next one of its key.
func (d *dispatcher) settled(t *task) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held--
	if d.worthFetching(d.limit - d.held) {
		d.wakeFetcher()
	}
	if len(t.m.Key) == 0 {
		return
	}
	key := string(t.m.Key)
	if waiting := d.behind[key]; len(waiting) > 0 {
		d.behind[key] = waiting[1:]
		d.ready <- waiting[0]
		return
	}
	delete(d.behind, key)
}

// again hands a message out once more after the wait.
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
