// Package migrationtools proves that the SQL files of the package migrations run unchanged in goose,
// golang-migrate and tern. It is a module of its own so that none of the tools enters the library's go.mod.
package migrationtools
