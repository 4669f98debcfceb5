package victims

import "math"

// GPUs is the index of GPUs in Problem.Need and Unit.Frees.
const GPUs = 0

// Limits of an exact choice. On a node of more units, or where more things are scarce than these, a choice is made all the same, but
// perhaps not the best one.
const (
	maxUnits  = 256 // pods per node are 110 by default
	maxScarce = 12
	// maxLabels bounds one step of the search; the random nodes of the tests need at most some hundreds.
	maxLabels = 10_000
)

// Unit is what stops together: a pod, or a whole gang wherever its members are. It may be taken: may.go has decided that.
type Unit struct {
	// UID tells units apart and breaks ties.
	UID string
	// Priority is the highest of its pods'.
	Priority int32
	// Lost is GPU-seconds, of all its pods. 0 or more.
	Lost int64
	// Frees is what of each resource its pods on this node give back, 0 or more, in the order of Problem.Need.
	Frees []int64
	// Evicts and Takes are, by index into Problem.Budgets and Problem.Shares, how many of its pods a disruption budget counts and how many
	// GPUs are taken from an account, all its pods together.
	Evicts, Takes []Amount
	// Stopping: it ends anyway, so waiting for it costs nothing. Priority, Lost, Evicts and Takes do not count.
	Stopping bool
}

// Amount is so much of the thing with that index, more than 0; an index comes once.
type Amount struct {
	Index int
	N     int64
}

// Share is an account whose guaranteed share must not be taken, or only if it must be.
type Share struct {
	// Borrowed is how many GPUs can be taken that are not guaranteed.
	Borrowed int64
	// Own: it is the preemptor's own account, which may take from its guarantee.
	Own bool
}

// Problem is one node and one pod that does not fit it.
type Problem struct {
	// Need is how much of each resource has to be given back, 0 or more; the first is GPUs.
	Need  []int64
	Units []Unit
	// Budgets is how many evictions each disruption budget still allows.
	Budgets []int64
	Shares  []Share
}

// Choice is a set of units, by index in the order of their UIDs.
type Choice struct {
	Cost  Cost
	Units []int
	// Inexact: the node was too large for the search to be sure that there is none better.
	Inexact bool
}

// Choose returns the best choice, and whether there is any.
//
// It goes over the units one by one and keeps labels: sets so far, of which none is at least as good as another in what it has freed,
// what it has used up, and what it costs. All parts of the cost but the highest priority add up, and so whatever is added to two sets
// leaves their order as it was; that is what makes it right to forget the worse one. Priority is bounded from outside instead: the least
// bound is sought under which the parts that count before it are as good as without.
func Choose(p Problem) (Choice, bool) {
	if len(p.Need) > maxScarce {
		return Choice{}, false // no pod asks for so many resources
	}
	s := newSearch(p)
	best, found := s.under(math.MaxInt64)
	if !found {
		return Choice{}, false
	}
	for _, bound := range s.priorities() {
		if bound >= best.priority {
			break
		}
		if lower, found := s.under(bound); found && lower.violations == best.violations && lower.guaranteed == best.guaranteed {
			best = lower
			break
		}
	}
	return s.choice(&best), true
}

// choice is what a label stands for.
func (s *search) choice(l *label) Choice {
	return Choice{
		Cost: Cost{
			Violations: l.violations, Guaranteed: l.guaranteed, Priority: l.priority, Lost: l.lost, GPUs: l.gpus, Units: l.units,
		},
		Units: s.indices(l), Inexact: s.inexact,
	}
}
