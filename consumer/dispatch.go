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
}

func newTask(m *Message) *task { return &task{m: m, ms: [1]*Message{m}} }

// dispatcher hands the messages of one stream to its workers: those without a
// key as they come, those with one key one after the other. A message that
// waits for its next attempt occupies its key, but no worker.
type dispatcher struct {
	limit int           // how many messages may be held
	ready chan *task    // to the workers; holds limit, so that no send blocks
	freed chan struct{} // there is room again

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

// room waits until a message may be added, and returns how many may.
func (d *dispatcher) room(ctx context.Context) (int, error) {
	for {
		d.mu.Lock()
		n := d.limit - d.held
		d.mu.Unlock()
		if n > 0 {
			return n, nil
		}
		select {
		case <-d.freed:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
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

// take returns a message that is ready now, or nil.
func (d *dispatcher) take() *task {
	select {
	case t := <-d.ready:
		return t
	default:
		return nil
	}
}

// settled lets go of a message, and of the next one of its key.
func (d *dispatcher) settled(t *task) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held--
	select {
	case d.freed <- struct{}{}:
	default: // room looks again anyway
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

// close ends all waits for a next attempt.
func (d *dispatcher) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for _, timer := range d.delayed {
		timer.Stop()
	}
}

// counts returns how many messages are held, and how many of them wait for
// their next attempt.
func (d *dispatcher) counts() (held, delayed int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.held, len(d.delayed)
}
