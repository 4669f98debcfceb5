// Package ledgertest holds what tests of the ledger and of its users share: short names for commands, a slow and
// obvious model of the ledger to compare the real one with, and a generator of random histories.
//
// The model knows no batches, locks, remembered rows or running sums: it keeps the list of everything that happened
// and adds it up from the start each time somebody asks.
package ledgertest
