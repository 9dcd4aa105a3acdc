//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/ackafter/ackafter/internal/servers"
)

// graceLimit is how long a command may take to end after a signal.
const graceLimit = 30 * time.Second

// relay passes signals to the command while it runs. Before and after that, a
// signal cancels the context.
type relay struct {
	context  context.Context
	cancel   context.CancelFunc
	incoming chan os.Signal
	finished chan struct{}

	mu    sync.Mutex
	group int // the command's process group, or 0
}

func newRelay() *relay {
	ctx, cancel := context.WithCancel(context.Background())
	r := &relay{context: ctx, cancel: cancel, incoming: make(chan os.Signal, 8), finished: make(chan struct{})}
	signal.Notify(r.incoming, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	go func() {
		defer close(r.finished)
		for received := range r.incoming {
			r.pass(received)
		}
	}()
	return r
}

func (r *relay) pass(received os.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cancel()
	number, ok := received.(syscall.Signal)
	if r.group == 0 || !ok {
		return
	}
	// To the whole group: "go test" does not pass SIGTERM to the tests. An
	// error means that the command has just ended.
	_ = syscall.Kill(-r.group, number)
}

// start starts the command, unless a signal came before. It excludes pass: a
// signal either prevents the command or reaches it.
func (r *relay) start(cmd *exec.Cmd) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.context.Err(); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	r.group = cmd.Process.Pid
	return nil
}

// ended is called when the command has ended. What it left running in its group
// is killed: nothing may remain.
func (r *relay) ended() {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = syscall.Kill(-r.group, syscall.SIGKILL) // An error says that nothing is left.
	r.group = 0
}

func (r *relay) close() {
	signal.Stop(r.incoming)
	close(r.incoming)
	<-r.finished
	r.cancel()
}

// execute runs the command with further environment variables and returns its
// exit code, like a shell: 128 and the number for a signal.
func execute(signals *relay, args, environment []string) (int, error) {
	// Not CommandContext, which would kill at once: the command may clean up.
	cmd := exec.CommandContext(context.Background(), args[0], args[1:]...)
	cmd.Env = append(os.Environ(), environment...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = input(), os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := signals.start(cmd); errors.Is(err, context.Canceled) {
		return interrupted, fmt.Errorf("interrupted before %s was started", args[0])
	} else if err != nil {
		return 1, fmt.Errorf("run the command: %w", err)
	}
	defer signals.ended()
	stopTimer := context.AfterFunc(signals.context, func() { killLater(signals, cmd.Process.Pid) })
	defer stopTimer()
	release, err := servers.EndGroupWithThisProcess(context.Background(), cmd.Process.Pid)
	if err != nil {
		return 1, errors.Join(err, syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL), cmd.Wait())
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = nil
	}
	if err := errors.Join(err, release()); err != nil {
		return 1, fmt.Errorf("run the command: %w", err)
	}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return cmd.ProcessState.ExitCode(), nil
}

// killLater kills the command if a signal has not ended it in time.
func killLater(signals *relay, group int) {
	time.AfterFunc(graceLimit, func() {
		signals.mu.Lock()
		defer signals.mu.Unlock()
		if signals.group == group {
			_ = syscall.Kill(-group, syscall.SIGKILL) // It may have just ended.
		}
	})
}

// input is the standard input for the command, unless that is a terminal: a
// command in a group of its own would be stopped when it reads from there.
func input() *os.File {
	if info, err := os.Stdin.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		return nil
	}
	return os.Stdin
}
