package migrationtools

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each Go snippet of the guide is code of a test or an example, word for word but for the indentation.
func TestTheGuideShowsCodeThatRuns(t *testing.T) {
	t.Parallel()
	var code strings.Builder
	for _, pattern := range []string{"*_test.go", "../../migrations/example_test.go"} {
		names, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, name := range names {
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			code.WriteString(withoutIndent(string(text)))
		}
	}
	guide, err := os.ReadFile("../../docs/migrations.md")
	require.NoError(t, err)
	snippets := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(guide), -1)
	require.NotEmpty(t, snippets)
	for _, snippet := range snippets {
		require.Contains(t, code.String(), withoutIndent(snippet[1]))
	}
}

func withoutIndent(text string) string {
	return regexp.MustCompile(`(?m)^[ \t]+`).ReplaceAllString(text, "")
}
