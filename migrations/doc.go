// Package migrations creates the tables that exactly-once handling needs in PostgreSQL 13 and later,
// and tells which version of them a database has.
//
// There are two ways to run the same SQL:
//
//   - [Apply], at the start of every worker. It is safe when many start at once.
//   - goose, tern, golang-migrate or atlas, fed with [FS] or [SplitFS].
//
// Each file records its own number in the table schema_version, so that [Current] and [Check] know the
// version whichever way was taken, and Apply has nothing left to do after one of the tools.
//
// All tables live in one schema, [DefaultSchema] unless you name another. The SQL names it everywhere, so
// nothing depends on search_path.
package migrations
