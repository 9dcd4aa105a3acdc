//go:build unix

package servers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A checkout that was copied with its servers' records must leave the servers
// of the original alone.
func TestCopiedRecordIsRefused(t *testing.T) {
	t.Parallel()
	original, copied := t.TempDir(), t.TempDir()
	if err := (record{URL: "postgres://127.0.0.1:1/", Processes: []recordedProcess{{PID: os.Getpid()}}}).write(original); err != nil {
		t.Fatal(err)
	}
	if r, err := readRecord(original); err != nil || len(r.Processes) != 1 {
		t.Fatalf("the original: %v, %v", r, err)
	}
	content, err := os.ReadFile(filepath.Join(original, recordFile))
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(copied, recordFile), string(content))
	for _, use := range []func() error{
		func() error { _, err := Running(t.Context(), copied); return err },
		func() error { return Remove(t.Context(), copied) },
	} {
		if err := use(); err == nil || !strings.Contains(err.Error(), "delete "+copied) {
			t.Errorf("no advice: %v", err)
		}
	}
	if _, err := os.Stat(filepath.Join(copied, recordFile)); err != nil {
		t.Errorf("something was deleted: %v", err)
	}
}
