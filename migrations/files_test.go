package migrations

import (
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func loaded(t *testing.T, schema string) []migration {
	t.Helper()
	all, err := load(schema)
	require.NoError(t, err)
	return all
}

// tern wants versions without gaps, and Apply runs them in order.
func TestVersionAgreesWithTheFiles(t *testing.T) {
	t.Parallel()
	all := loaded(t, DefaultSchema)
	require.Len(t, all, Version)
	for i, m := range all {
		require.Equal(t, i+1, m.version)
	}
}

func TestFS(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{"", DefaultSchema, `we"ird-Schema`} {
		combined, err := FS(schema)
		require.NoError(t, err)
		require.NoError(t, fstest.TestFS(combined, "001_processed_messages.sql"))
		split, err := SplitFS(schema)
		require.NoError(t, err)
		require.NoError(t, fstest.TestFS(split, "001_processed_messages.up.sql", "001_processed_messages.down.sql"))
	}
}

func TestTheDefaultSchemaGetsTheFilesAsTheyAre(t *testing.T) {
	t.Parallel()
	combined, err := FS("")
	require.NoError(t, err)
	for _, m := range loaded(t, DefaultSchema) {
		onDisk, err := fs.ReadFile(embedded, "sql/"+m.name+".sql")
		require.NoError(t, err)
		given, err := fs.ReadFile(combined, m.name+".sql")
		require.NoError(t, err)
		require.Equal(t, string(onDisk), string(given))
	}
}

// Whoever writes the schema in a way that is not recognised, or names it in a comment, learns it here.
func TestEveryMentionOfTheSchemaIsReplaced(t *testing.T) {
	t.Parallel()
	for _, m := range loaded(t, "elsewhere") {
		require.NotContains(t, m.combined, DefaultSchema, m.name)
		require.Contains(t, m.combined, `"elsewhere".`, m.name)
	}
}

func TestSplitFilesHoldOneDirectionAndNoAnnotation(t *testing.T) {
	t.Parallel()
	for _, m := range loaded(t, DefaultSchema) {
		require.NotContains(t, m.up+m.down, "+goose", m.name)
		require.NotContains(t, m.up, "drop table", m.name)
		require.NotContains(t, m.down, "create table", m.name)
	}
}

func TestFilesThatAreNotMigrations(t *testing.T) {
	t.Parallel()
	_, err := parse("notes.sql", separator)
	require.ErrorContains(t, err, "must begin with its version")
	_, err = parse("002_x.sql", "select 1;")
	require.ErrorContains(t, err, "lacks the line")
}

func TestSchemaNames(t *testing.T) {
	t.Parallel()
	for name, cause := range map[string]string{
		strings.Repeat("x", 63): "",
		strings.Repeat("x", 64): "has 64 bytes; PostgreSQL allows 63",
		"a\xffb":                "not valid UTF-8",
		"a\x00b":                "control character",
		"a\nb":                  "control character",
		"{{.Schema}}":           "template",
		"a$create_schema$":      "delimiter",
		"a --b":                 "comment",
		"a--b -c- ":             "",
	} {
		_, combined := FS(name)
		_, split := SplitFS(name)
		for _, err := range []error{combined, split} {
			if cause == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, cause)
			}
		}
	}
}
