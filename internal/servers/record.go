//go:build unix

package servers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// record is the file in a server's directory that tells the next process what
// this one started. It matters after a crash, and for detached servers.
type record struct {
	// Dir is where the record was written. A copy of it elsewhere speaks of
	// servers that belong to the original.
	Dir string `json:"dir"`
	URL string `json:"url"`
	// Ports are kept over a restart, when they are still free.
	Ports []int `json:"ports"`
	// Processes are in the order of their start.
	Processes []recordedProcess `json:"processes"`
}

type recordedProcess struct {
	Name   string         `json:"name"`
	PID    int            `json:"pid"`
	Start  string         `json:"start"`
	Signal syscall.Signal `json:"signal"` // for an orderly end
}

const (
	recordFile = "server.json"
	lockFile   = "lock"
)

func readRecord(dir string) (record, error) {
	var r record
	content, err := os.ReadFile(filepath.Join(dir, recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, fmt.Errorf("read what runs in %s: %w", dir, err)
	}
	if json.Unmarshal(content, &r) != nil {
		// A crash of the machine may truncate it; then nothing runs either.
		return record{}, nil
	}
	if here, err := realPath(dir); err != nil || r.Dir != here {
		return record{}, errors.Join(err, fmt.Errorf("%s is a copy of %s, whose servers are not ours to use or to stop: delete %[1]s",
			dir, r.Dir))
	}
	return r, nil
}

func realPath(dir string) (string, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", err
	}
	return filepath.Abs(dir)
}

func (r record) write(dir string) error {
	here, err := realPath(dir)
	if err != nil {
		return fmt.Errorf("record what runs in %s: %w", dir, err)
	}
	located := r
	located.Dir = here
	content, err := json.MarshalIndent(located, "", "  ")
	if err != nil {
		return fmt.Errorf("encode what runs in %s: %w", dir, err)
	}
	path := filepath.Join(dir, recordFile)
	if err := os.WriteFile(path+".new", append(content, '\n'), 0o600); err != nil {
		return fmt.Errorf("record what runs in %s: %w", dir, err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("record what runs in %s: %w", dir, err)
	}
	return nil
}

// alive reports whether the recorded process runs, rather than another one
// which got its number later.
func (p recordedProcess) alive(ctx context.Context) (bool, error) {
	start, err := startTime(ctx, p.PID)
	return err == nil && start != "" && start == p.Start, err
}

// end stops a recorded process, which need not be a child of this one.
func (p recordedProcess) end(ctx context.Context) error {
	for _, attempt := range []struct {
		signal syscall.Signal
		limit  time.Duration
	}{{p.Signal, stopLimit}, {syscall.SIGKILL, killLimit}} {
		alive, err := p.alive(ctx)
		if err != nil || !alive {
			return err
		}
		if err := syscall.Kill(p.PID, attempt.signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("stop %s (process %d): %w", p.Name, p.PID, err)
		}
		gone := func() bool {
			alive, err := p.alive(ctx)
			return err == nil && !alive
		}
		if pollUntil(ctx, attempt.limit, gone) {
			return nil
		}
	}
	return fmt.Errorf("stop %s: process %d does not end", p.Name, p.PID)
}

// Running returns the address of the server that an earlier process left
// running in dir, or "" when there is none.
func Running(ctx context.Context, dir string) (string, error) {
	r, err := readRecord(dir)
	if err != nil || len(r.Processes) == 0 {
		return "", err
	}
	for _, process := range r.Processes {
		if alive, err := process.alive(ctx); err != nil || !alive {
			return "", err
		}
	}
	return r.URL, nil
}

// Remove stops what an earlier process left running in dir, and deletes dir
// with the server's data. It fails when dir is in use by a living process.
func Remove(ctx context.Context, dir string) error {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	lock, err := lockDirectory(dir)
	if err != nil {
		return err
	}
	if _, err := readRecord(dir); err != nil { // the data may be another's, too
		return errors.Join(err, lock.Unlock())
	}
	return errors.Join(stopRecorded(ctx, dir), removeData(dir), os.RemoveAll(dir), lock.Unlock())
}

func lockDirectory(dir string) (*FileLock, error) {
	lock, err := tryLock(filepath.Join(dir, lockFile))
	if errors.Is(err, errLocked) {
		return nil, fmt.Errorf("the server directory %s is in use by another process", dir)
	}
	return lock, err
}

// stopRecorded stops in the reverse order of the start.
func stopRecorded(ctx context.Context, dir string) error {
	r, err := readRecord(dir)
	if err != nil {
		return err
	}
	for i := len(r.Processes) - 1; i >= 0; i-- {
		err = errors.Join(err, r.Processes[i].end(ctx))
	}
	if err != nil || len(r.Processes) == 0 {
		return err
	}
	r.Processes = nil
	return r.write(dir)
}
