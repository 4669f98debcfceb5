package turn

import (
	"math"
	"time"
)

// Pod is one that wants to be placed.
type Pod struct {
	UID, Account, Class string
	// GPUs of Class, 1 or more.
	GPUs     int64
	Priority int32
	Created  time.Time
	// Floor is the name of the account's floor that it belongs to, if any.
	Floor string
	// Group is the same for pods that are placed together or not at all; empty for one that is placed by itself.
	Group string
	// Shape is the same for pods that fit the same nodes.
	Shape uint64
}

// HeadStart is how much earlier than its creation a pod of that priority counts as created, from 0 for the lowest to aging for the highest:
//
//	aging × (1 + sgn(p) × log2(1+|p|) / 31) / 2
//
// So a higher priority goes first, unless the other pod is older by more than the difference: with an aging of 24 hours, priority
// 0 against 1,000 is 3 h 51 min, against 1,000,000 7 h 43 min. It depends on nothing that changes, so that a queue ordered by it
// stays ordered.
func HeadStart(priority int32, aging time.Duration) time.Duration {
	p := float64(priority)
	return time.Duration(float64(aging) * max(0, 1+math.Copysign(math.Log2(1+math.Abs(p))/31, p)) / 2)
}

// state of a pod in the queue.
type state int

const (
	// ready to be next.
	ready state = iota
	// parked until Ready is called: something else than its turn is in the way.
	parked
	// resting until its time comes.
	resting
)

// item is a pod in the queue.
type item struct {
	Pod
	// place orders the pods of one account, in nanoseconds.
	place int64
	state state
	// until is when a resting pod is ready.
	until time.Time
	// failures in a row, the latest of them at failedAt.
	failures int
	failedAt time.Time
	// unfit: it fitted nowhere, and waits to be tried again; room is on how many nodes there were as many free GPUs as it asks for.
	unfit bool
	room  int
	// heldSince is when a limit was first seen to hold the pod back; zero if none does.
	heldSince time.Time

	leaf         *node
	index        int // in its bucket
	restingIndex int // among the resting
}

// placeOf is where a pod stands in its account; see HeadStart.
func placeOf(p *Pod, account *Account) int64 {
	return p.Created.UnixNano() - int64(HeadStart(p.Priority, account.Aging))
}

func (i *item) before(other *item) bool {
	switch {
	case i.place != other.place:
		return i.place < other.place
	case !i.Created.Equal(other.Created):
		return i.Created.Before(other.Created)
	}
	return i.UID < other.UID
}

// Tier is a pod's claim among the pods of other accounts; a lower one goes first.
type Tier int

const (
	// Protected: the pod is within the floor of its account.
	Protected Tier = iota
	// Guaranteed: with the pod, the account is still within its guaranteed share.
	Guaranteed
	// Starved: nothing of the account runs, and the pod has waited for the account's MaxWait.
	Starved
	// Fair: by shares alone.
	Fair
)

// String names the tier in messages and metrics.
func (t Tier) String() string {
	return [...]string{"floor", "guaranteed", "starved", "fair"}[t]
}
