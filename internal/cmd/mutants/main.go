// Mutants breaks the code on purpose, in one place after the other, and requires
// that a test notices:
//
//	make mutants
//	bin/services run -- go run ./internal/cmd/mutants -only 'ack'
//
// Each change is made in a copy of the working tree. A mutant is caught when the
// tests that are named with it fail, and not when it merely does not compile.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

// limit is what the tests of one mutant may take. A test that hangs has noticed.
const limit = 2 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	only := flag.String("only", "", "run those with this in their name")
	flag.Parse()
	if err := run(ctx, *only); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only string) error {
	tree, err := os.MkdirTemp("", "ackafter-mutants-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tree) }()
	if err := copyTree(".", tree); err != nil {
		return err
	}
	var survivors []error
	tried := 0
	for _, m := range mutants {
		if !strings.Contains(m.name, only) {
			continue
		}
		tried++
		began := time.Now()
		by, err := m.try(ctx, tree)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			survivors = append(survivors, fmt.Errorf("%s: %w", m.name, err))
			by = "NOT CAUGHT: " + err.Error()
		}
		fmt.Printf("%-62s %5.1fs  %s\n", m.name, time.Since(began).Seconds(), by)
	}
	fmt.Printf("%d mutants, %d of them caught\n", tried, tried-len(survivors))
	return errors.Join(survivors...)
}

// mutant is one break of the code.
type mutant struct {
	name     string // what is broken
	file     string
	old, new string // old stands in the file once
	pkg      string // a package's path, or "module" and a nested module's
	tests    string // as for go test -run
}

// try returns the first test that has noticed.
func (m mutant) try(ctx context.Context, tree string) (by string, err error) {
	path := filepath.Join(tree, m.file)
	code, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	if n := bytes.Count(code, []byte(m.old)); n != 1 {
		return "", fmt.Errorf("%q stands %d times in %s: adapt the mutant", m.old, n, m.file)
	}
	if err := os.WriteFile(path, bytes.Replace(code, []byte(m.old), []byte(m.new), 1), 0o644); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.WriteFile(path, code, 0o644)) }()

	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	pkg, dir := m.pkg, tree
	if module, ok := strings.CutPrefix(pkg, "module "); ok {
		pkg, dir = ".", filepath.Join(tree, module)
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-timeout", "90s", "-run", m.tests, pkg)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		return "", errors.New("the tests pass")
	case bytes.Contains(out, []byte("[build failed]")):
		return "", fmt.Errorf("it does not compile: %.300s", out)
	}
	for line := range strings.Lines(string(out)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "--- FAIL: "); ok {
			return strings.Fields(name)[0], nil
		}
	}
	if bytes.Contains(out, []byte("panic: ")) {
		return "a panic", nil
	}
	return "", fmt.Errorf("no test has failed: %.300s", out)
}

// copyTree copies what a build needs.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, target := d.Name(), filepath.Join(to, path)
		switch {
		case d.IsDir() && path != from && (strings.HasPrefix(name, ".") || name == "bin"):
			return filepath.SkipDir
		case d.IsDir():
			return os.MkdirAll(target, 0o755)
		case !d.Type().IsRegular():
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, data, 0o644)
	})
}
