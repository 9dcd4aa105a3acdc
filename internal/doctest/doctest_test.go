// Package doctest checks what the documentation says of the code.
package doctest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// root is that of the repository.
const root = "../.."

// files returns the contents of all files with the suffix, by path.
func files(t *testing.T, suffix string) map[string]string {
	t.Helper()
	found := map[string]string{}
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "bin" || name == "testdata") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, suffix) {
			return nil
		}
		data, err := os.ReadFile(path)
		found[path] = string(data)
		return err
	}))
	require.NotEmpty(t, found)
	return found
}

// A promise names the tests that show it, and they are there.
func TestTestsThatAreNamedExist(t *testing.T) {
	t.Parallel()
	exist := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func (Test[A-Z0-9]\w*)\(`)
	for _, code := range files(t, "_test.go") {
		for _, m := range function.FindAllStringSubmatch(code, -1) {
			exist[m[1]] = true
		}
	}
	named := 0
	for path, text := range files(t, ".md") {
		for _, name := range regexp.MustCompile(`\bTest[A-Z0-9]\w*`).FindAllString(text, -1) {
			named++
			if !exist[name] && !strings.HasSuffix(path, "CHANGELOG.md") {
				t.Errorf("%s names %s, which does not exist", path, name)
			}
		}
	}
	require.Greater(t, named, 50)
}

// A page links to what is there.
func TestLinksLead(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	code := regexp.MustCompile("(?s)```.*?```")
	for path, text := range files(t, ".md") {
		text = code.ReplaceAllString(text, "")
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			target := filepath.Join(filepath.Dir(path), m[1])
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which is not there", path, m[1])
			}
		}
	}
}
