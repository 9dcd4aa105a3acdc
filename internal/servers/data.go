//go:build unix

package servers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// dataName is the name of a server's data in its directory: a directory, or a
// symbolic link to one elsewhere.
const dataName = "data"

// serverUser returns the user who must run a server that refuses to run as
// root, or nil when this process is not root.
func serverUser() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		account, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(account.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(account.Gid, 10, 32)
		if err := errors.Join(uidErr, gidErr); err != nil {
			return nil, fmt.Errorf("read the numbers of the user %s: %w", name, err)
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("PostgreSQL and PgBouncer refuse to run as root, and there is no user postgres or nobody to run them: create one, or run this as another user")
}

// placeData returns the directory for a server's data, owned by the server's
// user. It is in dir when that user can reach it. A directory of root often
// cannot be reached, such as t.TempDir() or a checkout below /root; then it is
// in os.TempDir(), behind a symbolic link in dir.
func placeData(ctx context.Context, dir string, as *syscall.Credential) (string, error) {
	path := filepath.Join(dir, dataName)
	if as == nil {
		if err := os.MkdirAll(path, 0o700); err != nil {
			return "", fmt.Errorf("create the server's data directory: %w", err)
		}
		return path, nil
	}
	reachable, err := canEnter(ctx, dir, as)
	if err != nil {
		return "", err
	}
	if target, err := os.Readlink(path); err == nil {
		if ownedDirectory(target, as) {
			return target, nil
		}
		// A restart of the machine may empty os.TempDir().
		if err := os.Remove(path); err != nil {
			return "", fmt.Errorf("remove a stale link: %w", err)
		}
	}
	if !reachable {
		return linkData(path, as)
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("create the server's data directory: %w", err)
	}
	return path, chown(path, as)
}

func linkData(path string, as *syscall.Credential) (string, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("the server's user cannot reach its data in %s any more; remove it: %w", path, err)
	}
	target, err := os.MkdirTemp("", "ackafter-")
	if err != nil {
		return "", fmt.Errorf("create a directory for the server's data: %w", err)
	}
	if err := os.Symlink(target, path); err != nil {
		return "", errors.Join(fmt.Errorf("link the server's data: %w", err), os.Remove(target))
	}
	return target, chown(target, as)
}

// canEnter reports whether the user may enter a directory, by trying it.
func canEnter(ctx context.Context, dir string, as *syscall.Credential) (bool, error) {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", ":")
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	err := cmd.Run()
	if errors.Is(err, fs.ErrPermission) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("find out whether the server's user can enter %s: %w", dir, err)
	}
	return true, nil
}

func ownedDirectory(path string, as *syscall.Credential) bool {
	info, err := os.Lstat(path) // Not Stat: in os.TempDir() a link may be anybody's.
	if err != nil || !info.IsDir() {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Uid == as.Uid
}

func chown(path string, as *syscall.Credential) error {
	if as == nil {
		return nil
	}
	if err := os.Lchown(path, int(as.Uid), int(as.Gid)); err != nil {
		return fmt.Errorf("give the data to the server's user: %w", err)
	}
	return nil
}

// removeData deletes a server's data, also where they are behind a link.
func removeData(dir string) error {
	path := filepath.Join(dir, dataName)
	if target, err := os.Readlink(path); err == nil {
		if err := os.RemoveAll(target); err != nil {
			return fmt.Errorf("remove the server's data: %w", err)
		}
	}
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("remove the server's data: %w", err)
	}
	return nil
}
