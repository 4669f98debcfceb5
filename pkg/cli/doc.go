// Package cli is the kubectl plugin `kubectl credit`: what an account has, and what became of its credits.
//
// Balances come from the API server, with the caller's own rights. Statements, discrepancies and audits are read from the
// ledger's database, so they are for operators who may read that; they only read.
package cli
