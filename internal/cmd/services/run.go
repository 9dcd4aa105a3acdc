//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/ackafter/ackafter/internal/servers"
)

// cleanUpLimit bounds the stop of the servers after a run.
const cleanUpLimit = 2 * time.Minute

// interrupted is the exit code after Ctrl-C, as in a shell.
const interrupted = 130

// run runs a command with the servers and returns its exit code.
func run(p *provider, args []string) (int, error) {
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		return 2, errors.New("run needs a command: services run -- cmd …")
	}
	signals := newRelay()
	defer signals.close()
	ctx := signals.context

	set := p.state("run-" + strconv.Itoa(os.Getpid()))
	found, lock, err := p.openSet(ctx, set)
	code := 1
	if err == nil {
		code, err = execute(signals, args, p.environment(found))
		p.sayAbsent() // again, where it is seen
	} else if ctx.Err() != nil {
		code = interrupted
	}
	// Also after a signal: nothing may remain.
	cleanUp, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpLimit)
	defer cancel()
	err = errors.Join(err, p.closeInstances(), p.removeSet(cleanUp, set))
	if lock != nil {
		err = errors.Join(err, lock.Unlock())
	}
	return code, err
}

// openSet provides the servers of a run. Each run has servers of its own,
// unless "up" provides some, so that two runs at once do not meet.
func (p *provider) openSet(ctx context.Context, set string) (found []provided, setLock *servers.FileLock, err error) {
	lock, err := p.lock(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	if err := p.removeStaleRuns(ctx); err != nil {
		return nil, nil, err
	}
	setLock, free, err := servers.TryLock(set + ".lock")
	if err != nil {
		return nil, nil, err
	}
	if !free {
		return nil, nil, fmt.Errorf("%s is in use by another process", set)
	}
	found, err = p.provide(ctx, set, false)
	return found, setLock, err
}

// removeStaleRuns cleans up after runs that were killed. It needs the lock.
func (p *provider) removeStaleRuns(ctx context.Context) error {
	locks, err := filepath.Glob(p.state("run-*.lock"))
	if err != nil {
		return fmt.Errorf("look for earlier runs: %w", err)
	}
	for _, path := range locks {
		lock, free, err := servers.TryLock(path)
		if err != nil {
			return err
		}
		if !free {
			continue // That run lives.
		}
		set := path[:len(path)-len(".lock")]
		if err := errors.Join(p.removeSet(ctx, set), lock.Unlock()); err != nil {
			return err
		}
	}
	return nil
}
