package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// member is one worker process. The fields below the line belong to the lock
// of the crew.
type member struct {
	number int
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	ended  chan struct{}
	err    error // of the process; to be read after ended
	// --
	streams   int  // it has so many
	held      bool // it has committed, and does not acknowledge
	open      int  // delivered on these streams, and not settled
	dismissed bool // it is to end
}

func startMember(c *crew, number int) (*member, error) {
	m := &member{number: number, cmd: c.command(), ended: make(chan struct{})}
	var err error
	if m.stdin, err = m.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := m.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := m.cmd.Start(); err != nil {
		return nil, err
	}
	go m.watch(c, stdout)
	return m, nil
}

// watch reads what the worker reports, to the last line, and then waits for
// the process. A line that a kill has cut off was never acted upon.
func (m *member) watch(c *crew, stdout io.Reader) {
	lines := bufio.NewReader(stdout)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			break
		}
		c.note(m, strings.Fields(line))
	}
	_, _ = io.Copy(io.Discard, lines)
	c.gone(m, m.cmd.Wait())
}

// note counts one line.
func (c *crew) note(m *member, words []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.signal()
	if len(words) == 0 {
		return
	}
	ids := words[1:]
	switch words[0] {
	case lineServing:
		m.streams++
	case lineEnded:
		m.streams--
		m.open -= len(ids)
	case lineDelivered:
		m.open += len(ids)
		c.tally.deliveries += len(ids)
		for _, id := range ids {
			c.tally.delivered[id] = true
		}
	case lineSettled:
		m.open -= len(ids)
		for _, id := range ids {
			c.tally.settled[id] = true
		}
	case lineHeld:
		m.held = true
	}
}

// arm makes the worker hold the next acknowledgement.
func (m *member) arm() error {
	if _, err := fmt.Fprintln(m.stdin, lineArm); err != nil {
		return fmt.Errorf("arm worker %d: %w", m.number, err)
	}
	return nil
}

func (m *member) awaitEnd(ctx context.Context) error {
	select {
	case <-m.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("worker %d does not end: %w", m.number, context.Cause(ctx))
	}
}
