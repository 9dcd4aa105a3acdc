//go:build unix

package servers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// endLeftover ends a postmaster which runs on our data although no record
// tells of it, and removes the pid file of one that is dead. PostgreSQL itself
// refuses to start when another process has got the number in that file.
//
// The directory is locked: nobody else starts a server on these data meanwhile.
func (p *PostgreSQL) endLeftover(ctx context.Context) error {
	path := filepath.Join(p.cluster(), "postmaster.pid")
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read PostgreSQL's pid file: %w", err)
	}
	first, _, _ := strings.Cut(string(content), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(first))
	runs := func() bool { return err == nil && strings.Contains(commandLine(ctx, pid), p.cluster()) }
	if runs() {
		if err := syscall.Kill(pid, syscall.SIGQUIT); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("stop the PostgreSQL left behind, process %d: %w", pid, err)
		}
		if !pollUntil(ctx, stopLimit, func() bool { return !runs() }) {
			return fmt.Errorf("the PostgreSQL left behind, process %d, does not end", pid)
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove PostgreSQL's stale pid file: %w", err)
	}
	return nil
}
