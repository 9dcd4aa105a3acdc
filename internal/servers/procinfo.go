//go:build unix

package servers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// procStat is what /proc/PID/stat says, on Linux.
type procStat struct {
	state string
	group int
	start string // in ticks since the boot
}

func readProcStat(pid string) (procStat, bool) {
	content, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	if err != nil {
		return procStat{}, false
	}
	// The second field, the name in parentheses, may contain anything.
	fields := strings.Fields(string(content[strings.LastIndexByte(string(content), ')')+1:]))
	if len(fields) < 20 {
		return procStat{}, false
	}
	group, err := strconv.Atoi(fields[2])
	return procStat{state: fields[0], group: group, start: fields[19]}, err == nil
}

func hasProc() bool {
	_, ok := readProcStat("self")
	return ok
}

// startTime returns when a process started, in a form that is only good for
// comparing: number and start time together identify a process. It returns ""
// when there is no such process, or only a zombie.
func startTime(ctx context.Context, pid int) (string, error) {
	if hasProc() {
		stat, ok := readProcStat(strconv.Itoa(pid))
		if !ok || stat.state == "Z" {
			return "", nil
		}
		return bootID() + "/" + stat.start, nil
	}
	cmd := exec.CommandContext(ctx, "ps", "-o", "lstart=", "-p", strconv.Itoa(pid))
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	output, err := cmd.Output()
	if err != nil && len(output) > 0 {
		return "", fmt.Errorf("ask ps for the start of process %d: %w", pid, err)
	}
	return strings.TrimSpace(string(output)), nil
}

// commandLine returns the command line of a process, or "" when it is gone.
func commandLine(ctx context.Context, pid int) string {
	if hasProc() {
		content, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		if err != nil {
			return ""
		}
		return strings.ReplaceAll(string(content), "\x00", " ")
	}
	output, err := exec.CommandContext(ctx, "ps", "-ww", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return ""
	}
	return string(output)
}

// bootID distinguishes the ticks of this boot from those of an earlier one.
func bootID() string {
	content, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(content))
}

// groupAlive reports whether a process group has a member besides zombies,
// which in a container may remain until its first process ends.
func groupAlive(group int) bool {
	if syscall.Kill(-group, 0) != nil {
		return false
	}
	if !hasProc() {
		return true
	}
	paths, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return true
	}
	for _, path := range paths {
		if stat, ok := readProcStat(filepath.Base(path)); ok && stat.group == group && stat.state != "Z" {
			return true
		}
	}
	return false
}
