// Package failures is for operators: it shows the messages that workers have set
// aside in failed_messages, makes them due again, and gives them up.
//
//	begin; set local lock_timeout            each call is such a transaction,
//	select … | update … | delete … insert …  or several short ones
//	commit
//
// Every call is safe while workers run. A worker keeps the row of a message
// locked while its handler runs. Count, List, Get and Export do not wait for
// that, RetryAll passes such messages over, and Retry and LetGo wait for
// Config.LockTimeout and then return ErrBusy. No call keeps a worker waiting.
//
// A call ends when its context does; it has no other time limit. None needs
// anything of a session, so that all work through PgBouncer in transaction mode,
// whatever the pool's default_query_exec_mode.
//
// The tables come from package migrations. docs/operators.md tells which rights
// the calls need.
package failures
