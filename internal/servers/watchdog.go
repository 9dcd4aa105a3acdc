//go:build unix

package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// watchdogScript waits for a line. The end of its input instead of a line
// means that the process which started the server is dead.
//
// Linux has PR_SET_PDEATHSIG for this, but it fires when the thread that
// started the child ends, and in Go a thread may end at any time.
const watchdogScript = `read -r _ || kill -s "$1" -- "$2"`

// watchdog is a small shell that ends a server when this process dies, be it
// by SIGKILL.
type watchdog struct {
	cmd   *exec.Cmd
	input io.WriteCloser
}

// startWatchdog guards a process, or a process group by its negative number.
func startWatchdog(ctx context.Context, target int, signal syscall.Signal) (*watchdog, error) {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "/bin/sh", "-c", watchdogScript,
		"ackafter-watchdog", signalName(signal), strconv.Itoa(target))
	cmd.Dir = "/" // It must not keep the caller's directory busy.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("create the pipe of a watchdog: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start a watchdog: %w", err), input.Close())
	}
	return &watchdog{cmd: cmd, input: input}, nil
}

// EndGroupWithThisProcess makes a process group get SIGTERM when this process
// dies, be it by SIGKILL. Call release when the group has ended.
func EndGroupWithThisProcess(ctx context.Context, group int) (release func() error, err error) {
	w, err := startWatchdog(ctx, -group, syscall.SIGTERM)
	if err != nil {
		return nil, err
	}
	return w.release, nil
}

// release ends the watchdog without harm to the server. A process without a
// watchdog has a nil one.
func (w *watchdog) release() error {
	if w == nil {
		return nil
	}
	_, writeErr := io.WriteString(w.input, "\n")
	if errors.Is(writeErr, syscall.EPIPE) {
		writeErr = nil // Somebody killed the watchdog; it is gone, as wanted.
	}
	waitErr := w.cmd.Wait()
	var exit *exec.ExitError
	if errors.As(waitErr, &exit) {
		waitErr = nil // How it ended does not matter.
	}
	return errors.Join(writeErr, waitErr)
}

// signalName returns the name that the shell's kill knows: QUIT for SIGQUIT.
func signalName(signal syscall.Signal) string {
	names := map[syscall.Signal]string{
		syscall.SIGQUIT: "QUIT", syscall.SIGKILL: "KILL", syscall.SIGTERM: "TERM", syscall.SIGINT: "INT",
	}
	if name, ok := names[signal]; ok {
		return name
	}
	return strings.ToUpper(signal.String())
}
