package servers

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestBinaryIsMissing(t *testing.T) {
	t.Parallel()
	if _, err := Binary("no-such-program"); err == nil {
		t.Error("an unknown program was found")
	}
	err := error(&MissingProgramError{Program: "epmd", Package: "erlang-base"})
	want := "epmd is not installed: install the package erlang-base (Debian: apt-get install erlang-base)"
	if err.Error() != want {
		t.Errorf("error = %q, want %q", err, want)
	}
	if missing := (*MissingProgramError)(nil); !errors.As(err, &missing) || missing.Package != "erlang-base" {
		t.Errorf("errors.As found %v", missing)
	}
}

func TestNewestIn(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, version := range []string{"9", "15", "13"} {
		dir := filepath.Join(root, version, "bin")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "initdb"), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := newestIn([]string{"/nowhere", filepath.Join(root, "*", "bin")}, "initdb"), filepath.Join(root, "15", "bin", "initdb"); got != want {
		t.Errorf("newestIn = %q, want %q", got, want)
	}
	if got := newestIn([]string{root}, "initdb"); got != "" {
		t.Errorf("newestIn = %q, want nothing", got)
	}
}
