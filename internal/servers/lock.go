//go:build unix

package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// FileLock is a lock between processes. The operating system releases it when
// the process that holds it ends, however it ends.
type FileLock struct {
	file *os.File
}

// errLocked says that another process, or another part of this one, has the
// lock.
var errLocked = errors.New("locked by another process")

// TryLock takes the lock at path, without waiting. It returns false when the
// lock is taken.
func TryLock(path string) (*FileLock, bool, error) {
	lock, err := tryLock(path)
	if errors.Is(err, errLocked) {
		return nil, false, nil
	}
	return lock, err == nil, err
}

// WaitLock takes the lock at path and waits while it is taken; waiting is
// called once when there is something to wait for.
func WaitLock(ctx context.Context, path string, waiting func()) (*FileLock, error) {
	for first := true; ; first = false {
		lock, err := tryLock(path)
		if !errors.Is(err, errLocked) {
			return lock, err
		}
		if first {
			waiting()
		}
		if err := pause(ctx); err != nil {
			return nil, fmt.Errorf("wait for the lock %s: %w", path, err)
		}
	}
}

func tryLock(path string) (*FileLock, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("create the directory of a lock: %w", err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open a lock: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errLocked
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	// The former holder may have removed the file between our open and our
	// lock; then we hold the lock of a file that nobody else sees.
	if !stillAt(file, path) {
		file.Close()
		return nil, errLocked
	}
	return &FileLock{file: file}, nil
}

func stillAt(file *os.File, path string) bool {
	opened, err := file.Stat()
	if err != nil {
		return false
	}
	current, err := os.Stat(path)
	return err == nil && os.SameFile(opened, current)
}

// Unlock removes the lock's file and releases the lock.
func (l *FileLock) Unlock() error {
	// Removed before it is released: whoever opened it meanwhile sees, once
	// the lock is free, that the file is gone.
	removeErr := os.Remove(l.file.Name())
	if errors.Is(removeErr, os.ErrNotExist) {
		removeErr = nil // The caller removed the whole directory.
	}
	return errors.Join(removeErr, l.file.Close())
}
