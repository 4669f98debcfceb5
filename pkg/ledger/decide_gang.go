package ledger

import "fmt"

// MaxGangMembers bounds one AllocateGang: as many rows as the largest batch of single commands writes.
const MaxGangMembers = 1024

// gangPlan is what a gang's command would do. Nothing is written while it is made, so a refusal has nothing to undo.
type gangPlan struct {
	// place are the members to put on their nodes; the others are bound there already.
	place []Allocate
	// reservations cover them, in the order of their first member.
	reservations []*gangReservation
	byUID        map[string]*gangReservation
}

// gangReservation is a reservation as the plan would leave it.
type gangReservation struct {
	Reservation
	isNew bool
	gpus  int64 // of its members that are placed
}

// allocateGang does all of it or nothing: it plans, then asks every limit for the gang as a whole, then writes.
func (d *decider) allocateGang(c AllocateGang) Verdict {
	plan, refusal := d.planGang(c)
	if refusal == nil {
		refusal = d.chargeGang(c, plan)
	}
	if refusal != nil {
		return Verdict{Refusal: refusal}
	}
	for _, r := range plan.reservations {
		if r.isNew {
			d.insertHold(r.Reservation)
		}
		if r.State == Held {
			d.Reservations.change(r.UID).enter(Active)
		}
	}
	for _, member := range plan.place {
		d.intend(member, plan.byUID[member.Reservation].Reservation)
	}
	return Verdict{Replayed: len(plan.place) == 0}
}

// planGang finds each member's reservation, and refuses what no credits could help.
func (d *decider) planGang(c AllocateGang) (gangPlan, *Refusal) {
	plan := gangPlan{byUID: make(map[string]*gangReservation)}
	placed := make(map[string]bool, len(c.Members))
	for _, member := range c.Members {
		if existing := d.Allocations.Get(member.PodUID); existing != nil {
			if verdict, done := existingAllocation(member, *existing); verdict.Refusal != nil {
				return plan, ofGang(c, member, verdict.Refusal)
			} else if done {
				continue
			}
		}
		if refusal := d.planMember(&plan, member); refusal != nil {
			return plan, ofGang(c, member, refusal)
		}
		plan.place, placed[member.PodUID] = append(plan.place, member), true
	}
	for _, r := range plan.reservations {
		// What the members themselves were intended for before is given up for what they are intended for now.
		var inUse int64
		for _, pod := range d.reservationPods[r.UID] {
			if a := d.Allocations.Get(pod); a.Open() && !placed[pod] {
				inUse += a.GPUs
			}
		}
		if refusal := r.cover(fmt.Sprintf("gang of %d pods", len(c.Members)), r.gpus, inUse); refusal != nil {
			return plan, refusal
		}
	}
	return plan, nil
}

// planMember adds a member to the reservation that covers it, one that an earlier member brings included.
func (d *decider) planMember(plan *gangPlan, member Allocate) *Refusal {
	r := plan.byUID[member.Reservation]
	if r == nil {
		reservation, isNew, verdict := d.reservationFor(member, true)
		if reservation == nil {
			return verdict.Refusal
		}
		r = &gangReservation{Reservation: *reservation, isNew: isNew}
		plan.reservations, plan.byUID[r.UID] = append(plan.reservations, r), r
	}
	if r.Class != member.Class {
		return termsDiffer(r.Reservation, member)
	}
	r.gpus += member.GPUs
	return nil
}

// chargeGang asks the limits for all that the gang brings, and sets it aside as one amount.
func (d *decider) chargeGang(c AllocateGang, plan gangPlan) *Refusal {
	account := c.Members[0].Account
	var all movement
	holds := 0
	for _, r := range plan.reservations {
		if r.State == Held {
			all.running++
		}
		if !r.isNew {
			continue
		}
		sum, fits := addWithin(all.held, r.Amount)
		if !fits {
			return refuse(OutOfRange, "gang of %d pods needs more credits than can be counted; ask for a shorter max-runtime or fewer GPUs", len(c.Members))
		}
		holds, all.held, all.reserved = holds+1, sum, sum
	}
	if holds > 0 {
		if refusal := d.checkHold(d.payerOf(account), account, all.held); refusal != nil {
			whole := *refusal
			whole.Message = fmt.Sprintf("gang of %d pods %s", len(c.Members), refusal.Message)
			return &whole
		}
	}
	if refusal := d.checkRunning(account, all.running); refusal != nil {
		return refusal
	}
	if len(plan.reservations) == 0 {
		return nil // all are bound already
	}
	return d.transact(d.payerOf(account), account, all)
}

// ofGang says whose refusal it is.
func ofGang(c AllocateGang, member Allocate, refusal *Refusal) *Refusal {
	whole := *refusal
	whole.Message = fmt.Sprintf("gang of %d pods, pod %s/%s: %s", len(c.Members), member.Pod.Namespace, member.Pod.Name, refusal.Message)
	return &whole
}
