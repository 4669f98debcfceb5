// Package turn answers whose turn it is: which of all waiting GPU pods is to be placed next. It is pure: no clock, no I/O, no
// Kubernetes types; time is an argument. The plugin fairqueue carries out its answers, and the benchmark of fairness runs the same code
// on a virtual clock.
//
// # Order
//
// Accounts form a tree. Each class of GPUs has a competition of its own, since an H100 is never given to who waits for an A100.
// From the root down, at each level, the account that goes first is the one
//
//  1. of the better Tier: a protected floor, then a guaranteed share, then one that has waited too long for its first GPU;
//  2. with the smaller share, see below;
//  3. whose pod comes first in time, then whose name does.
//
// Within one account a pod's place is its creation, less a head start for its priority (HeadStart), which is at most the
// account's Aging: so a priority counts within the account only, and no pod is overtaken for longer than that.
//
// # Share
//
// An account's share of a class is the average number of GPUs that it, and everything below it, has held lately, plus the number
// that it holds now and half of what the pod asks for, over the class's GPUs. The average is exponential: what was used one half-life ago counts half. An account's share is
// that of the class of which it has most (dominant-resource fairness), by its weight.
//
// The part that changes fast, GPUs held now, is exact at every pick. The average is that of the latest tick; a half-life of
// 7 days moves it by 10^-6 in a second.
//
// # Limits
//
// A pod is next only if its account and every account above it may use that many more GPUs of the class: guaranteed plus borrowable.
// A pod that a limit has held back for longer than Options.Patience is no longer overtaken by others under the same limit, so that
// large pods do not starve behind small ones.
//
// # Cost
//
// Adding, removing, taking and freeing a pod cost O(depth × log of the accounts at each level), and Next costs O(classes). Only a limit
// that is nearly used up looks at all accounts under it. A tick, once a second at most, looks at every account once.
package turn
