// Package accounts turns CreditAccounts, CreditGrants and GPUClasses into ledger rows, and shows the ledger's
// balances in CreditAccount's status.
//
// The API objects say what people want, the ledger what is so. Every reconciler gathers the object, decides one
// command, submits it under a key made of the object's UID (and generation, where it may be edited), and reports
// the verdict in a condition. A restart at any point repeats the same key and so the same answer: a grant is posted
// once (L12). Nothing here ever deletes money: an account with history stays, and says why (condition Deletable).
//
// The projection (Projector) only copies: PostgreSQL decides, the status shows. It never goes back to an older ledger
// revision.
package accounts
