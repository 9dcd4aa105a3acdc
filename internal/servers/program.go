package servers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// MissingProgramError says that a program is not installed.
type MissingProgramError struct {
	// Program is the name of the missing program.
	Program string
	// Package is the Debian package that contains it.
	Package string
}

// Error names the missing program and the package to install.
func (e *MissingProgramError) Error() string {
	return fmt.Sprintf("%s is not installed: install the package %s (Debian: apt-get install %s)", e.Program, e.Package, e.Package)
}

// program describes where a program is found, besides PATH.
type program struct {
	debian string
	// directories are tried before PATH when preferred is true, else after it.
	directories []string
	preferred   bool
}

// programs lists the programs which this package runs.
func programs() map[string]program {
	postgresql := program{debian: "postgresql", directories: []string{
		"/usr/lib/postgresql/*/bin",                   // Debian
		"/usr/pgsql-*/bin",                            // Red Hat
		"/opt/homebrew/opt/postgresql@*/bin",          // macOS, Apple silicon
		"/usr/local/opt/postgresql@*/bin",             // macOS, Intel
		"/Applications/Postgres.app/Contents/*/*/bin", // macOS, Postgres.app
	}}
	// Debian's /usr/sbin/rabbitmq-server is a wrapper that switches to the
	// system user of the packaged service. The script behind it does not.
	rabbitmq := program{debian: "rabbitmq-server", preferred: true, directories: []string{
		"/usr/lib/rabbitmq/bin", "/opt/homebrew/sbin", "/usr/local/sbin",
	}}
	return map[string]program{
		"initdb":          postgresql,
		"postgres":        postgresql,
		"rabbitmq-server": rabbitmq,
		"epmd":            {debian: "erlang-base", directories: []string{"/opt/homebrew/bin", "/usr/lib/erlang/bin"}},
		// Unprivileged users often lack /usr/sbin in PATH.
		"pgbouncer": {debian: "pgbouncer", directories: []string{"/usr/sbin", "/opt/homebrew/bin"}},
		"java":      {debian: "openjdk-17-jre-headless", directories: []string{"/opt/homebrew/opt/openjdk/bin"}},
		"mvn":       {debian: "maven", directories: []string{"/opt/homebrew/bin"}},
	}
}

// Binary returns the path of an installed program: initdb, postgres,
// rabbitmq-server, epmd, pgbouncer, java or mvn. A program that is not installed gives a
// *MissingProgramError.
func Binary(name string) (string, error) {
	known, ok := programs()[name]
	if !ok {
		return "", fmt.Errorf("unknown program %q", name)
	}
	if known.preferred {
		if path := newestIn(known.directories, name); path != "" {
			return path, nil
		}
	}
	if path, err := exec.LookPath(name); err == nil {
		return filepath.Abs(path)
	}
	if path := newestIn(known.directories, name); path != "" {
		return path, nil
	}
	return "", &MissingProgramError{Program: name, Package: known.debian}
}

// newestIn returns the program in the first directory pattern that has it, of
// the highest version when several directories match.
func newestIn(patterns []string, name string) string {
	for _, pattern := range patterns {
		paths, err := filepath.Glob(filepath.Join(pattern, name))
		if err != nil {
			continue // The patterns are constants: this cannot happen.
		}
		slices.SortFunc(paths, func(a, b string) int { return version(b) - version(a) })
		for _, path := range paths {
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				return path
			}
		}
	}
	return ""
}

// version returns the last number in the path of a program's directory: the
// major version for PostgreSQL, and something irrelevant for all others, which
// match one directory only.
func version(path string) int {
	digits := strings.FieldsFunc(filepath.Dir(path), func(r rune) bool { return r < '0' || r > '9' })
	if len(digits) == 0 {
		return 0
	}
	number, err := strconv.Atoi(digits[len(digits)-1])
	if err != nil {
		return 0
	}
	return number
}
