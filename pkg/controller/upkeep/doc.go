// Package upkeep keeps the ledger's tables from growing with time. On the leader, step by step, with pauses between the steps and
// without any writer waiting for it, it
//
//   - compacts the intervals of allocations that ended some days ago to one row for each stretch of time that one source vouches for,
//     beside a few numbers from which they come back;
//   - forgets remembered answers, and on which GPUs pods were metered, once they can do no harm any more.
//
// What may go is decided by ledger.CompactTime and ledger.ForgetRule, and kept by the database. Statements, balances, audits and
// answers to late reports are the same before and after. Stopped at any moment it leaves nothing half done, and remembers nothing
// that matters: a new leader begins a pass from the start. See docs/designs/growth.md.
package upkeep
