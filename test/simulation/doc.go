// Package simulation lives a made-up but complete life of a ledger on a real PostgreSQL, from one seed, while everything
// around it fails, and then holds the ledger to every answer it gave.
//
// A Plan is a pure function of the seed and the number of commands: the account tree, the workloads with everything that is
// ever said about them, which writer is told what in which order, what is delivered twice, late, in the wrong order or with
// other content under the same key, and after how many deliveries which fault strikes. Run carries it out with several
// postgres.Stores at once, some of them in child processes that are killed, each behind a toxiproxy and with a clock of its
// own. What is not determined by the seed is the interleaving inside PostgreSQL and the operating system: the same seed
// brings the same commands and faults, not the same schedule, so a failure may need a few repetitions to come back.
//
// What is checked (see oracle.go) are answers and effects, against a book that is kept from the answers alone: every
// answer is given again when its command is repeated (I6), what was acknowledged is there, what was refused is not, each
// account's balance is what the answers add up to, each attempt was charged its price once (I4), no hold outlives its
// workload, stale epochs change nothing (I7), and the ledger's own audit and rebuild find nothing to say.
package simulation
