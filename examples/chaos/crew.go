package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// crew is the parent's view of its workers.
type crew struct {
	command func() *exec.Cmd // a worker to be
	fail    func(error)      // ends the drill
	changed chan struct{}    // holds a token when await should look again

	mu      sync.Mutex
	members []*member // those that live
	hired   int
	tally   tally
}

// tally counts over all workers, dead or alive.
type tally struct {
	deliveries int
	delivered  map[string]bool // ids
	settled    map[string]bool // ids
}

func newCrew(command func() *exec.Cmd, fail func(error)) *crew {
	return &crew{
		command: command,
		fail:    fail,
		changed: make(chan struct{}, 1),
		tally:   tally{delivered: make(map[string]bool), settled: make(map[string]bool)},
	}
}

// hire starts workers. Holding the lock makes sure that none is started after
// kill has looked for the last time.
func (c *crew) hire(n int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range n {
		c.hired++
		m, err := startMember(c, c.hired)
		if err != nil {
			return fmt.Errorf("start worker %d: %w", c.hired, err)
		}
		c.members = append(c.members, m)
	}
	return nil
}

// gone notes the end of a worker.
func (c *crew) gone(m *member, err error) {
	c.mu.Lock()
	for i, other := range c.members {
		if other == m {
			c.members = append(c.members[:i], c.members[i+1:]...)
			break
		}
	}
	expected := m.dismissed
	c.mu.Unlock()
	m.err = err
	close(m.ended)
	c.signal()
	if !expected {
		c.fail(fmt.Errorf("worker %d ended by itself: %w", m.number, errors.Join(err, errUnasked)))
	}
}

var errUnasked = errors.New("nobody had asked it to")

func (c *crew) signal() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// await waits until done, which is called with the lock held, returns true.
// One goroutine at a time may wait.
func (c *crew) await(ctx context.Context, what string, limit time.Duration, done func() bool) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		c.mu.Lock()
		ok := done()
		c.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-c.changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
			return fmt.Errorf("gave up waiting for %s after %v", what, limit)
		}
	}
}

// kill ends one worker with SIGKILL. replace also starts another.
func (c *crew) kill(ctx context.Context, m *member, replace bool) error {
	c.mu.Lock()
	m.dismissed = true
	c.mu.Unlock()
	_ = m.cmd.Process.Kill() // an error means that it has ended
	if replace {
		if err := c.hire(1); err != nil {
			return err
		}
	}
	return m.awaitEnd(ctx)
}

// killAll leaves no worker behind.
func (c *crew) killAll(ctx context.Context) error {
	var errs []error
	for _, m := range c.living() {
		errs = append(errs, c.kill(ctx, m, false))
	}
	return errors.Join(errs...)
}

// stop ends all workers with SIGTERM. Each must exit with 0.
func (c *crew) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	members := c.living()
	for _, m := range members {
		c.mu.Lock()
		m.dismissed = true
		c.mu.Unlock()
		_ = m.cmd.Process.Signal(syscall.SIGTERM)
	}
	for _, m := range members {
		if err := m.awaitEnd(ctx); err != nil {
			return err
		}
		if m.err != nil {
			return fmt.Errorf("worker %d did not stop cleanly at SIGTERM: %w", m.number, m.err)
		}
	}
	return nil
}

// stopLimit is more than all of a worker's own limits together.
const stopLimit = 30 * time.Second

func (c *crew) living() []*member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*member(nil), c.members...)
}
