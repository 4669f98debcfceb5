package ledger

import "slices"

// The legal transitions, written once. doc.go draws them, the database states them again
// (postgres/migrations), and a test compares all three.

var reservationTransitions = map[ReservationState][]ReservationState{
	Held:     {Active, Released, Expired},
	Active:   {Settled},
	Settled:  nil,
	Released: nil,
	Expired:  nil,
}

var allocationTransitions = map[AllocationState][]AllocationState{
	AllocationIntended: {AllocationReleased, AllocationBound, AllocationMetering, AllocationEnded},
	// A released intent comes back when the pod is placed again, or when it turns out that the pod was bound or ran
	// all the same: the node's word beats the scheduler's, and real usage is never refused (I9).
	AllocationReleased: {AllocationIntended, AllocationBound, AllocationMetering, AllocationEnded},
	AllocationBound:    {AllocationMetering, AllocationSuspect, AllocationEnded},
	AllocationMetering: {AllocationSuspect, AllocationEnded},
	AllocationSuspect:  {AllocationBound, AllocationMetering, AllocationEnded},
	AllocationEnded:    nil,
}

// ReservationStates and AllocationStates list every state, in the order of a life.
var (
	ReservationStates = []ReservationState{Held, Active, Settled, Released, Expired}
	AllocationStates  = []AllocationState{AllocationIntended, AllocationReleased, AllocationBound, AllocationMetering,
		AllocationSuspect, AllocationEnded}
)

// MayBecome reports whether a reservation may go from s to next.
func (s ReservationState) MayBecome(next ReservationState) bool {
	return slices.Contains(reservationTransitions[s], next)
}

// MayBecome reports whether an allocation may go from s to next.
func (s AllocationState) MayBecome(next AllocationState) bool {
	return slices.Contains(allocationTransitions[s], next)
}
