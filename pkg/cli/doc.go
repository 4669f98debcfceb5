// Package cli is the kubectl plugin `kubectl credit`: what an account has, and what became of its credits.
//
// Balances come from the API server, with the caller's own rights. A statement is read from the ledger's database, so it
// is for operators who may read that; it only reads.
package cli
