package victims

import (
	"cmp"
	"math"
)

// Cost is what a choice costs, in the order in which it counts.
type Cost struct {
	// Violations is by how many evictions disruption budgets are exceeded.
	Violations int64
	// Guaranteed is how many GPUs are taken from a guaranteed share.
	Guaranteed int64
	// Priority is the highest among those that are stopped; NoPriority if nobody is.
	Priority int64
	// Lost is GPU-seconds.
	Lost int64
	// GPUs is how many are freed on the node. What is asked for is the same for all choices, so fewer is less in excess.
	GPUs int64
	// Units that stop, or are waited for.
	Units int64
}

// NoPriority is below every pod's.
const NoPriority = math.MinInt64

// Compare is negative if a is better than b. What is equal in all of them is told apart by UIDs.
func (a Cost) Compare(b Cost) int {
	return cmp.Or(
		cmp.Compare(a.Violations, b.Violations),
		cmp.Compare(a.Guaranteed, b.Guaranteed),
		cmp.Compare(a.Priority, b.Priority),
		cmp.Compare(a.Lost, b.Lost),
		cmp.Compare(a.GPUs, b.GPUs),
		cmp.Compare(a.Units, b.Units),
	)
}
