package migrations

import (
	"cmp"
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
)

//go:embed sql/*.sql
var embedded embed.FS

// separator is tern's line between the two halves of a file. To goose it is a comment.
const separator = "---- create above / drop below ----"

// migration is one SQL file, rewritten for one schema.
type migration struct {
	version  int
	name     string // 001_processed_messages
	combined string // the whole file, for goose and tern
	up, down string
}

// load reads the embedded files for one schema, in order of version.
func load(schema string) ([]migration, error) {
	names, err := fs.Glob(embedded, "sql/*.sql")
	if err != nil {
		return nil, fmt.Errorf("migrations: list the embedded files: %w", err)
	}
	var all []migration
	for _, name := range names {
		text, err := fs.ReadFile(embedded, name)
		if err != nil {
			return nil, fmt.Errorf("migrations: read an embedded file: %w", err)
		}
		m, err := parse(strings.TrimPrefix(name, "sql/"), inSchema(string(text), schema))
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b migration) int { return cmp.Compare(a.version, b.version) })
	return all, nil
}

// parse splits one file, named like 001_processed_messages.sql.
func parse(filename, text string) (migration, error) {
	name := strings.TrimSuffix(filename, ".sql")
	number, _, _ := strings.Cut(name, "_")
	version, err := strconv.Atoi(number)
	if err != nil {
		return migration{}, fmt.Errorf("migrations: %s must begin with its version and an underscore: %w", filename, err)
	}
	up, down, found := strings.Cut(text, separator)
	if !found {
		return migration{}, fmt.Errorf("migrations: %s lacks the line %q", filename, separator)
	}
	return migration{version, name, text, plain(up), plain(down)}, nil
}

// plain drops goose's annotations.
func plain(sql string) string {
	var kept strings.Builder
	for line := range strings.Lines(sql) {
		if !strings.HasPrefix(line, "-- +goose ") {
			kept.WriteString(line)
		}
	}
	return strings.TrimSpace(kept.String()) + "\n"
}
