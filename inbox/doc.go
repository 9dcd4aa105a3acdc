// Package inbox is the inbox on PostgreSQL: it claims messages, lets a handler
// apply them in the same transaction, and commits, so that each message takes
// effect once however often it is delivered.
//
//	begin                                                   ┐ one round trip
//	insert into processed_messages … on conflict do nothing ┘
//	no row inserted?  → it is a duplicate
//	apply(ctx, tx, fresh)
//	is it still the same transaction?                       ┐
//	commit                                                  │ one round trip
//	begin, insert: the next message, if one is waiting      ┘
//
// Under READ COMMITTED a second copy waits for the transaction of the first,
// and is a duplicate when that commits, or new when it rolls back.
//
// What goes wrong is told apart by whose doing it is, and the error says so:
// the database's (consumer.ErrOutage), a rival's (consumer.ErrContention), or
// the handler's (any other). An error at the commit is the server's answer,
// unless the connection was lost: then nobody knows, and the next claim of the
// same message tells (consumer.ErrOutcomeUnknown).
//
// The tables come from package migrations. docs/postgresql.md tells of
// PgBouncer, isolation levels, synchronous_commit and failover.
package inbox
