//go:build unix

package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// instance is what all private servers have in common: a locked directory,
// reserved ports, and the processes that run now.
type instance struct {
	name      string
	dir       string
	data      string
	detached  bool
	lock      *FileLock
	portCount int

	// mu makes Start, Stop, Kill and Close exclude each other.
	mu        sync.Mutex
	ports     []*port
	url       string
	processes []*process
	everReady bool // clients may know the ports
	closed    bool
}

// openInstance locks dir and stops what a crashed process left running there.
func openInstance(ctx context.Context, name, dir string, portCount int, detached bool) (*instance, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("find the directory for %s: %w", name, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("create the directory for %s: %w", name, err)
	}
	lock, err := lockDirectory(dir)
	if err != nil {
		return nil, err
	}
	i := &instance{name: name, dir: dir, detached: detached, lock: lock, portCount: portCount}
	if err := stopRecorded(ctx, dir); err != nil {
		return nil, errors.Join(err, lock.Unlock())
	}
	left, err := readRecord(dir)
	if err != nil {
		return nil, errors.Join(err, lock.Unlock())
	}
	if err := i.reservePorts(left.Ports); err != nil {
		return nil, errors.Join(err, i.release())
	}
	return i, nil
}

// reservePorts replaces the ports, by the preferred ones where possible.
func (i *instance) reservePorts(preferred []int) error {
	err := i.releasePorts()
	for n := range i.portCount {
		wanted := 0
		if n < len(preferred) {
			wanted = preferred[n]
		}
		p, reserveErr := reservePort(wanted)
		if reserveErr != nil {
			return errors.Join(err, reserveErr)
		}
		i.ports = append(i.ports, p)
	}
	return err
}

func (i *instance) port(n int) int { return i.ports[n].number }

func (i *instance) releasePorts() error {
	var err error
	for _, p := range i.ports {
		err = errors.Join(err, p.release())
	}
	i.ports = nil
	return err
}

func (i *instance) release() error { return errors.Join(i.releasePorts(), i.lock.Unlock()) }

// start calls attempt, which launches the processes and waits until they
// serve. It tries again while something that goes away by itself is in the
// way, and with other ports as long as nobody knows them.
func (i *instance) start(ctx context.Context, limit time.Duration, attempt func(context.Context) error) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return fmt.Errorf("start %s: it is closed", i.name)
	}
	if len(i.processes) > 0 {
		return fmt.Errorf("start %s: it is running", i.name)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := attempt(ctx)
		if err == nil {
			i.everReady = true
			return nil
		}
		err = errors.Join(err, i.endAll(context.WithoutCancel(ctx), true))
		if ctx.Err() != nil || !temporary(err) {
			return err
		}
		if !i.everReady {
			err = errors.Join(err, i.reservePorts(nil))
		}
		if pause(ctx) != nil {
			return err
		}
	}
}

// temporary reports whether an error says that an address is taken, or that
// the last processes of a killed server are about to end.
func temporary(err error) bool {
	for _, sign := range []string{
		"address already in use", "eaddrinuse", "address is in use", "could not bind",
		"pre-existing shared memory block", `lock file "postmaster.pid" already exists`,
		"already running on", "in use by another", "name seems to be in use",
	} {
		if strings.Contains(strings.ToLower(err.Error()), sign) {
			return true
		}
	}
	return false
}

// setURL is called at each start; the address changes only before the first
// one has succeeded, while nobody else can read it.
func (i *instance) setURL(url string) {
	if i.url != url {
		i.url = url
	}
}

// launch starts one process of the server and records it.
func (i *instance) launch(ctx context.Context, spec processSpec) (*process, error) {
	spec.detached = i.detached
	spec.logPath = filepath.Join(i.dir, spec.name+".log")
	p, err := startProcess(ctx, spec)
	if err != nil {
		return nil, err
	}
	i.processes = append(i.processes, p)
	return p, i.writeRecord(ctx)
}

func (i *instance) writeRecord(ctx context.Context) error {
	r := record{URL: i.url}
	for _, p := range i.ports {
		r.Ports = append(r.Ports, p.number)
	}
	for _, p := range i.processes {
		start, err := startTime(ctx, p.pid)
		if err != nil {
			return err
		}
		r.Processes = append(r.Processes, recordedProcess{Name: p.spec.name, PID: p.pid, Start: start, Signal: p.spec.stopSignal})
	}
	return r.write(i.dir)
}

// awaitReady waits until probe succeeds. It gives up when a process ends.
func (i *instance) awaitReady(ctx context.Context, probe func(context.Context) error) error {
	for {
		for _, p := range i.processes {
			if p.exited() {
				return fmt.Errorf("start %s: %s ended early (%v); the end of its log:\n%s", i.name, p.spec.name, p.err, p.logTail())
			}
		}
		last := probe(ctx)
		if last == nil {
			return nil
		}
		if pause(ctx) != nil {
			if errors.Is(ctx.Err(), context.Canceled) {
				return fmt.Errorf("start %s: %w", i.name, ctx.Err())
			}
			main := i.processes[len(i.processes)-1]
			return fmt.Errorf("start %s: %w; its last answer: %w; the end of its log:\n%s", i.name, ctx.Err(), last, main.logTail())
		}
	}
}

// stop ends the processes, the last one first.
func (i *instance) stop(ctx context.Context, crash bool) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.endAll(ctx, crash)
}

func (i *instance) endAll(ctx context.Context, crash bool) error {
	if len(i.processes) == 0 {
		return nil
	}
	var err error
	for n := len(i.processes) - 1; n >= 0; n-- {
		p := i.processes[n]
		signal := p.spec.stopSignal
		if crash {
			signal = p.spec.killSignal
		}
		err = errors.Join(err, p.end(ctx, signal))
	}
	i.processes = nil
	return errors.Join(err, i.writeRecord(ctx))
}

// close ends the processes and deletes the data.
func (i *instance) close(ctx context.Context) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return nil
	}
	i.closed = true
	return errors.Join(i.endAll(ctx, false), removeData(i.dir), i.release())
}

// environment is a short way to write variables.
func environment(pairs ...string) []string {
	env := make([]string, 0, len(pairs)/2)
	for n := 0; n+1 < len(pairs); n += 2 {
		env = append(env, pairs[n]+"="+pairs[n+1])
	}
	return env
}
