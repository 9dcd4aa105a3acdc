//go:build unix

package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

const (
	pollInterval = 50 * time.Millisecond
	// stopLimit bounds an orderly stop; after it the process is killed.
	stopLimit = 30 * time.Second
	// killLimit bounds the wait for a process after SIGKILL.
	killLimit = 10 * time.Second
)

// processSpec describes a process to start.
type processSpec struct {
	name       string
	path       string
	args       []string
	env        []string
	cwd        string
	logPath    string
	credential *syscall.Credential
	stopSignal syscall.Signal // for an orderly end
	killSignal syscall.Signal // for a crash
	detached   bool           // outlives this process
}

// process is a child of this process, which leads a session of its own.
type process struct {
	spec     processSpec
	pid      int
	logStart int64 // the size of the log when the process started
	watchdog *watchdog
	done     chan struct{} // closed when the child has been waited for
	err      error         // how the child ended; read it after done
}

// startProcess starts a process whose output goes to its log file. The context
// bounds only the start.
func startProcess(ctx context.Context, spec processSpec) (*process, error) {
	logFile, err := os.OpenFile(spec.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", spec.name, err)
	}
	defer logFile.Close() // The child has its own copy.
	info, err := logFile.Stat()
	if err != nil {
		return nil, fmt.Errorf("read the size of the log of %s: %w", spec.name, err)
	}
	// Without cancellation: the server lives on when the start's context ends.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), spec.path, spec.args...)
	cmd.Env, cmd.Dir = childEnvironment(spec.env), spec.cwd
	cmd.Stdout, cmd.Stderr = logFile, logFile
	// A session of its own: the terminal's Ctrl-C is for the caller, who then
	// stops the server in an orderly way.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: spec.credential}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.name, err)
	}
	p := &process{spec: spec, pid: cmd.Process.Pid, logStart: info.Size(), done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	if !spec.detached {
		if p.watchdog, err = startWatchdog(ctx, p.killTarget(), spec.killSignal); err != nil {
			return nil, errors.Join(err, p.end(ctx, syscall.SIGKILL))
		}
	}
	return p, nil
}

// killTarget is the process, or its whole group when it gets SIGKILL, which
// lets nobody clean up.
func (p *process) killTarget() int {
	if p.spec.killSignal == syscall.SIGKILL {
		return -p.pid
	}
	return p.pid
}

// childEnvironment keeps what every program needs and nothing that could
// configure a server, such as PGDATA or RABBITMQ_NODENAME.
func childEnvironment(extra []string) []string {
	env := []string{"LC_ALL=C.UTF-8"}
	for _, name := range []string{"PATH", "HOME", "TMPDIR"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return append(env, extra...)
}

// end sends the signal and returns when the process and its group are gone.
// When the signal does not end it in time, SIGKILL does.
func (p *process) end(ctx context.Context, signal syscall.Signal) error {
	err := p.signalAndWait(ctx, signal)
	if err != nil {
		err = errors.Join(err, p.killGroup())
	}
	return errors.Join(err, p.awaitGroup(), p.watchdog.release())
}

func (p *process) signalAndWait(ctx context.Context, signal syscall.Signal) error {
	if p.exited() {
		return nil // Its number may belong to another process by now.
	}
	if err := syscall.Kill(p.pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("send %v to %s: %w", signal, p.spec.name, err)
	}
	timer := time.NewTimer(stopLimit)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop %s: %w", p.spec.name, ctx.Err())
	case <-timer.C:
		return fmt.Errorf("stop %s: it did not end within %v of %v", p.spec.name, stopLimit, signal)
	}
}

func (p *process) killGroup() error {
	if err := syscall.Kill(-p.pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill %s: %w", p.spec.name, err)
	}
	timer := time.NewTimer(killLimit)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
		return fmt.Errorf("kill %s: process %d did not end within %v", p.spec.name, p.pid, killLimit)
	}
}

// awaitGroup waits until what the process left in its group is gone as well.
func (p *process) awaitGroup() error {
	if !p.exited() || syscall.Kill(-p.pid, syscall.SIGKILL) != nil {
		return nil // Nobody is left, the usual case.
	}
	gone := func() bool { return !groupAlive(p.pid) }
	if !pollUntil(context.Background(), killLimit, gone) {
		return fmt.Errorf("stop %s: processes of its group %d remain", p.spec.name, p.pid)
	}
	return nil
}

func (p *process) exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// pollUntil waits for a condition and reports whether it came true.
func pollUntil(ctx context.Context, limit time.Duration, condition func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for !condition() {
		if pause(ctx) != nil {
			return false
		}
	}
	return true
}

// pause waits between two looks at something, or returns the context's error.
func pause(ctx context.Context) error {
	timer := time.NewTimer(pollInterval)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
