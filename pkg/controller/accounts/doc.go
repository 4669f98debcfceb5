// Package accounts turns CreditAccounts, GPUClasses, CreditGrants, CreditTransfers and CreditAdjustments into ledger rows,
// and shows the ledger's balances in CreditAccount's status.
//
// The API objects say what people want, the ledger what is so. Every reconciler gathers the object, decides one
// command, submits it under a key made of the object's UID (and generation, where it may be edited), and reports
// the verdict in a condition. A restart at any point repeats the same key and so the same answer: what moves money does so
// once (L12). Nothing here ever deletes money: deleting a grant, transfer or adjustment changes no balance, and an account
// with history stays, and says why (condition Deletable).
//
// The projection (Projector) only copies: PostgreSQL decides, the status shows. It never goes back to an older ledger
// revision. The Sweeper touches accounts on which something has fallen due, so that what is shown is current.
package accounts
