package migrations

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io/fs"
)

// FS returns the migrations for schema as goose and tern read them: one file for each version, such as
// 001_processed_messages.sql, with both directions. The empty schema means [DefaultSchema], for which the files
// are the very ones in the directory migrations/sql.
//
// The result is read-only and safe for concurrent use.
func FS(schema string) (fs.FS, error) {
	return view(schema, func(m migration) []file {
		return []file{{m.name + ".sql", m.combined}}
	})
}

// SplitFS returns the migrations for schema as golang-migrate and atlas read them: two files for each version, such
// as 001_processed_messages.up.sql and 001_processed_messages.down.sql. The empty schema means [DefaultSchema].
//
// The result is read-only and safe for concurrent use.
func SplitFS(schema string) (fs.FS, error) {
	return view(schema, func(m migration) []file {
		return []file{{m.name + ".up.sql", m.up}, {m.name + ".down.sql", m.down}}
	})
}

type file struct{ name, text string }

func view(schema string, files func(migration) []file) (fs.FS, error) {
	schema, err := resolveSchema(schema)
	if err != nil {
		return nil, err
	}
	all, err := load(schema)
	if err != nil {
		return nil, err
	}
	var list []file
	for _, m := range all {
		list = append(list, files(m)...)
	}
	return inMemory(list)
}

// inMemory goes through a zip archive because its Reader is the one in-memory fs.FS in the standard library
// that is not meant for tests.
func inMemory(files []file) (fs.FS, error) {
	var archive bytes.Buffer
	w := zip.NewWriter(&archive)
	for _, f := range files {
		entry, err := w.Create(f.name)
		if err != nil {
			return nil, fmt.Errorf("migrations: pack %s: %w", f.name, err)
		}
		if _, err := entry.Write([]byte(f.text)); err != nil {
			return nil, fmt.Errorf("migrations: pack %s: %w", f.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("migrations: pack the files: %w", err)
	}
	r, err := zip.NewReader(bytes.NewReader(archive.Bytes()), int64(archive.Len()))
	if err != nil {
		return nil, fmt.Errorf("migrations: unpack the files: %w", err)
	}
	return r, nil
}
