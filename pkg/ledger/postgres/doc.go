// Package postgres makes the ledger's decisions durable in PostgreSQL.
//
// It owns the schema (migrations/), the statements (sql/) and the group commit: callers queue commands, one worker
// takes what has gathered, and two pipelined round trips carry it out. The first begins a transaction, locks the
// touched accounts with their ancestors in the order of names, and reads the rows that the commands touch; then
// ledger.Decide answers; the second writes the changes set by set and commits. Callers get their verdicts after the
// commit is durable. Several processes may do so on one database at once.
//
// How it fails. A refusal is an answer, in ledger.Verdict. Everything else is an error: while PostgreSQL is away,
// commands wait and are repeated as long as somebody waits for them (UnavailableError); when too many wait, new ones are
// turned away (ErrQueueFull). Conflicts between processes, deadlocks and a COMMIT whose outcome is unknown are repeated
// silently; the commands' keys make that exact (I6). A broken constraint is a ConstraintError: either a fault of
// ledger.Decide or the work of another client.
//
// No session state is used outside transactions, so PgBouncer may stand in between in transaction mode.
package postgres
