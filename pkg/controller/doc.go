// Package controller puts the credit controller together: accounts, grants and prices into the ledger (accounts), pods,
// Jobs and nodes against it (lifecycle), measured intervals in (intake), a watch over the ledger itself (auditor), and the intake's certificate
// (servingcert).
//
// The reconcilers run on the replica that holds the lease; the intake runs on every one. Nothing is kept that could not
// be rebuilt from the API server and PostgreSQL, so any process may be killed at any point.
package controller
