package servers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLookupPrefersTheEnvironment(t *testing.T) {
	t.Setenv("DATABASE_URL", "postgres://from-the-environment")
	if got, err := DatabaseURL(); err != nil || got != "postgres://from-the-environment" {
		t.Errorf("DatabaseURL = %q, %v", got, err)
	}
}

func TestLookupBelow(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	nested := filepath.Join(root, "internal", "nested")
	for path, content := range map[string]string{
		filepath.Join(root, "go.mod"):   "// A comment.\nmodule " + modulePath + "\n\ngo 1.25.0\n",
		filepath.Join(nested, "go.mod"): "module " + modulePath + "/internal/nested\n",
		filepath.Join(root, EnvFile):    "DATABASE_URL=postgres://u@h/d?a=b\nAMQP_URL=\n",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := lookupBelow(nested, "DATABASE_URL"); err != nil || got != "postgres://u@h/d?a=b" {
		t.Errorf("lookup = %q, %v, want the line of the file", got, err)
	}
	for _, dir := range []string{nested, t.TempDir()} {
		_, err := lookupBelow(dir, "AMQP_URL")
		if err == nil || !strings.Contains(err.Error(), "`make services`") || !strings.Contains(err.Error(), "set AMQP_URL") {
			t.Errorf("error in %s = %v, want one that names `make services` and the variable", dir, err)
		}
	}
}
