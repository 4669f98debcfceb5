// Package catalog is the scheduler's view of GPUClasses and CreditAccounts, kept in memory by watches, so that a
// scheduling cycle asks nobody.
//
// It is a view: the account balances in it are the controller's last report, up to a second or so old, and decide only whether
// it is worth asking the ledger again. The ledger decides, every time, before a pod is bound.
//
// Every change that could matter to a waiting pod has a number, so that "has anything changed since I was refused" is one
// comparison per account.
package catalog
