// Package checkpointpreemption stops the pods whose stop destroys least work, for a GPU pod that may stop others and fits nowhere.
// docs/designs/preemption.md has the rules, victims/ the pure decisions.
//
//	plugin.go      the plugin, and when it leaves the pod to upstream's DefaultPreemption
//	facts.go       what is known of each running pod, kept for as long as its node does not change
//	scene.go       what a decision needs of the whole cluster: accounts, budgets, groups, who was stopped lately
//	plan.go        the best choice of each node, and over nodes, checked with the real filters
//	together.go    which pods cannot go on without each other
//	evaluation.go  upstream's evaluator and executor carry out what was decided
//	record.go      the ledger has it before anything is evicted; events and metrics
//
// Nothing is evicted that the ledger has not recorded under the current epoch (I7). If the ledger is away, nothing is evicted.
// What a crash leaves is described in the design note; this process keeps nothing that cannot be found again.
package checkpointpreemption
