package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// What the mutants change is still in the code. Whether each is caught takes
// minutes to find out: make mutants.
func TestMutantsFitTheCode(t *testing.T) {
	t.Parallel()
	for _, m := range mutants {
		code, err := os.ReadFile(filepath.Join("../../..", m.file))
		if err != nil {
			t.Errorf("%s: %v", m.name, err)
			continue
		}
		if n := bytes.Count(code, []byte(m.old)); n != 1 {
			t.Errorf("%s: %q stands %d times in %s: adapt the mutant", m.name, m.old, n, m.file)
		}
	}
}
