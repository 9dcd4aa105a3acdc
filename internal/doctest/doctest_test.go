// Package doctest checks what the documentation says of the code.
package doctest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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

// code is a block of it, which is no text.
var code = regexp.MustCompile("(?s)```.*?```")

// A page links to what is there, down to the heading.
func TestLinksLead(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\]\(([^)#:]*)(?:#([^)]*))?\)`)
	pages := files(t, ".md")
	for path, text := range pages {
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(text, ""), -1) {
			target := path
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(path), m[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which is not there", path, m[1])
			} else if m[2] != "" && !slices.Contains(anchors(pages[target]), m[2]) {
				t.Errorf("%s links to the heading %s of %s, which is not there", path, m[2], target)
			}
		}
	}
}

// anchors returns those that GitHub gives the headings of a page.
func anchors(page string) (all []string) {
	dropped := regexp.MustCompile(`[^\w\- ]`)
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(code.ReplaceAllString(page, ""), -1) {
		all = append(all, strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return all
}
