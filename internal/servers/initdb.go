//go:build unix

package servers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// initialize creates the database cluster unless there is one, and reports
// whether there was none.
func (p *PostgreSQL) initialize(ctx context.Context) (fresh bool, err error) {
	switch content, err := os.ReadFile(filepath.Join(p.cluster(), "PG_VERSION")); {
	case err == nil:
		return false, p.checkVersion(ctx, strings.TrimSpace(string(content)))
	case !errors.Is(err, fs.ErrNotExist):
		return false, fmt.Errorf("read the version of the data: %w", err)
	}
	return true, p.create(ctx)
}

func (p *PostgreSQL) create(ctx context.Context) error {
	// Under another name until it is complete, so that a crash of initdb
	// never leaves half a cluster behind.
	unfinished := p.cluster() + ".new"
	if err := errors.Join(os.RemoveAll(unfinished), os.RemoveAll(p.cluster())); err != nil {
		return fmt.Errorf("remove an unfinished cluster: %w", err)
	}
	initdb, err := Binary("initdb")
	if err != nil {
		return err
	}
	// --no-sync: whether the empty cluster survives a power failure is of no
	// interest. The server itself runs with fsync.
	output, err := p.command(ctx, initdb, "--pgdata", unfinished, "--username=postgres", "--auth=trust",
		"--encoding=UTF8", "--locale=C", "--no-sync").CombinedOutput()
	if err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, strings.TrimSpace(string(output)))
	}
	if err := os.Rename(unfinished, p.cluster()); err != nil {
		return fmt.Errorf("name the new cluster: %w", err)
	}
	return nil
}

// checkVersion compares the data with the program, whose own message does not
// name the cure.
func (p *PostgreSQL) checkVersion(ctx context.Context, data string) error {
	postgres, err := Binary("postgres")
	if err != nil {
		return err
	}
	output, err := p.command(ctx, postgres, "--version").Output()
	if err != nil {
		return fmt.Errorf("ask postgres for its version: %w", err)
	}
	// For example "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)".
	fields := strings.Fields(string(output))
	if len(fields) < 3 {
		return fmt.Errorf("read the version of postgres: %q", output)
	}
	if major, _, _ := strings.Cut(fields[2], "."); major != data {
		return fmt.Errorf("the data in %s are of PostgreSQL %s, but PostgreSQL %s is installed: run `make services-down`, or remove the directory", p.instance.dir, data, major)
	}
	return nil
}
