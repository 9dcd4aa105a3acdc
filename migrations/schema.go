package migrations

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

// DefaultSchema is the schema that the empty name stands for.
const DefaultSchema = "ackafter"

// maxIdentifier is PostgreSQL's limit in bytes; it cuts longer names short, and two of them may then collide.
const maxIdentifier = 63

// schemaInSQL finds the schema where the SQL files use it as an identifier: before a table, and where it is created.
var schemaInSQL = regexp.MustCompile(`\backafter\.[a-z_]|\bschema if not exists ackafter;`)

// ValidSchema returns an error that says why schema cannot hold the tables, or nil. The empty name stands for
// [DefaultSchema]. It asks no database.
func ValidSchema(schema string) error {
	_, err := resolveSchema(schema)
	return err
}

// resolveSchema turns the empty name into the default and refuses names that cannot be used.
func resolveSchema(schema string) (string, error) {
	if schema == "" {
		return DefaultSchema, nil
	}
	refuse := func(cause string) (string, error) {
		return "", fmt.Errorf("migrations: schema name %q: %s", schema, cause)
	}
	switch {
	case !utf8.ValidString(schema):
		return refuse("is not valid UTF-8")
	case len(schema) > maxIdentifier:
		return refuse(fmt.Sprintf("has %d bytes; PostgreSQL allows %d", len(schema), maxIdentifier))
	case strings.ContainsFunc(schema, unicode.IsControl):
		return refuse("contains a control character")
	case strings.Contains(schema, "{{"):
		return refuse("contains {{, which tern takes for a template; was a template not filled in?")
	case strings.Contains(schema, "$create_schema$"):
		return refuse("contains $create_schema$, a delimiter in the SQL files")
	case slices.ContainsFunc(strings.Fields(`"`+schema), func(word string) bool { return strings.HasPrefix(word, "--") }):
		return refuse("contains a space and --, which goose takes for a comment")
	}
	return schema, nil
}

// inSchema rewrites the text of an SQL file for another schema.
func inSchema(sql, schema string) string {
	if schema == DefaultSchema {
		return sql
	}
	quoted := pgx.Identifier{schema}.Sanitize()
	return schemaInSQL.ReplaceAllStringFunc(sql, func(use string) string {
		return strings.Replace(use, DefaultSchema, quoted, 1)
	})
}
