package ledger

func (d *decider) allocate(c Allocate) Verdict {
	existing := d.Allocations.Get(c.PodUID)
	if existing != nil {
		if verdict, done := existingAllocation(c, *existing); done {
			return verdict
		}
	}
	reservation, place, verdict := d.reservationFor(c, c.AlreadyRunning)
	if reservation == nil {
		return verdict
	}
	if refusal := d.checkCoverage(c, *reservation); refusal != nil {
		return Verdict{Refusal: refusal}
	}
	if refusal := d.checkRunning(c.Account, 1); refusal != nil && reservation.State == Held && !c.AlreadyRunning {
		return Verdict{Refusal: refusal}
	}
	if place {
		if refusal := d.applyHold(*reservation); refusal != nil {
			return Verdict{Refusal: refusal}
		}
	}
	if reservation.State == Held {
		d.Reservations.change(c.Reservation).enter(Active)
		d.spend(c.Account, movement{running: 1})
	}
	d.intend(c, *reservation)
	return Verdict{RateVersion: reservation.RateVersion}
}

// intend puts the pod on its node, anew if it was intended for one before.
func (d *decider) intend(c Allocate, r Reservation) {
	allocation := Allocation{
		PodUID: c.PodUID, Pod: c.Pod, Reservation: c.Reservation, Account: c.Account, Node: c.Node, Class: c.Class,
		RateVersion: r.RateVersion, Rate: r.Rate, GPUs: c.GPUs, LeaderEpoch: c.LeaderEpoch,
		State: AllocationIntended, IntendedAt: d.now,
	}
	if d.Allocations.Get(c.PodUID) == nil {
		d.Allocations.insert(c.PodUID, allocation)
		d.indexAllocation(allocation)
		return
	}
	row := d.Allocations.change(c.PodUID)
	row.enter(AllocationIntended)
	*row = allocation
}

// existingAllocation answers for a pod that has an allocation; done is false when it may be re-targeted.
func existingAllocation(c Allocate, existing Allocation) (verdict Verdict, done bool) {
	switch {
	case existing.Reservation != c.Reservation || existing.Account != c.Account:
		verdict.Refusal = refuse(TermsDiffer, "pod %s is allocated under workload %s of account %s, not %s of %s",
			c.PodUID, existing.Reservation, existing.Account, c.Reservation, c.Account)
	case existing.State == AllocationEnded:
		verdict.Refusal = allocationOver(existing)
	case existing.State == AllocationIntended || existing.State == AllocationReleased:
		return Verdict{}, false
	case existing.Node != c.Node:
		verdict.Refusal = alreadyBound(existing, c.Node)
	default:
		verdict.Replayed, verdict.RateVersion = true, existing.RateVersion
	}
	return verdict, true
}

func allocationOver(a Allocation) *Refusal {
	return refuse(AllocationOver, "the allocation of pod %s ended at %s; a new attempt is a new pod", a.PodUID, stamp(a.EndedAt))
}

func alreadyBound(a Allocation, node string) *Refusal {
	return refuse(AlreadyBound, "pod %s is bound to node %s, not to %s", a.PodUID, a.Node, node)
}

// reservationFor finds the reservation that covers the pod, or plans the hold that the command brings (place). If
// there is neither, the verdict says why. unlimited: whether the account has the credits is not asked.
func (d *decider) reservationFor(c Allocate, unlimited bool) (reservation *Reservation, place bool, verdict Verdict) {
	existing := d.Reservations.Get(c.Reservation)
	switch {
	case existing == nil && c.Hold != nil:
		planned, verdict := d.planHold(*c.Hold, unlimited)
		return planned, true, verdict
	case existing == nil:
		verdict.Refusal = refuse(NoReservation, "workload %s has no reservation that could pay for pod %s", c.Reservation, c.PodUID)
	case !existing.Open():
		verdict.Refusal = refuse(NoReservation, "the reservation of workload %s is %s since %s and pays for no further pod",
			c.Reservation, existing.State, stamp(existing.ClosedAt))
	case existing.Account != c.Account || existing.Class != c.Class:
		verdict.Refusal = termsDiffer(*existing, c)
	default:
		return copyOf(existing), false, verdict
	}
	return nil, false, verdict
}

func termsDiffer(r Reservation, c Allocate) *Refusal {
	return refuse(TermsDiffer, "the reservation of workload %s is for class %s paid by %s, the pod needs %s paid by %s",
		c.Reservation, r.Class, r.Account, c.Class, c.Account)
}

// checkCoverage refuses more GPUs at once than were reserved, and any further attempt on a hold that is used up. What
// already runs is never stopped by this (I9).
func (d *decider) checkCoverage(c Allocate, r Reservation) *Refusal {
	if c.AlreadyRunning {
		return nil
	}
	gpus, _ := d.openGPUs(r.UID, c.PodUID)
	return r.cover("pod", c.GPUs, gpus)
}

// cover refuses more GPUs for someone while others are in use, and any if the hold is used up.
func (r Reservation) cover(someone string, gpus, inUse int64) *Refusal {
	if inUse+gpus > r.MaxGPUs {
		return refuse(HoldExceeded, "%s needs %d GPUs, the reservation of workload %s covers %d at once and %d are in use",
			someone, gpus, r.UID, r.MaxGPUs, inUse)
	}
	if r.GPUSeconds == 0 {
		return refuse(HoldExceeded, "the reservation of workload %s sets nothing aside while it waits to be admitted again", r.UID)
	}
	if r.Remaining() == 0 {
		return refuse(HoldExceeded, "the reservation of workload %s is used up: %s credits were held, %s are charged; submit a new workload",
			r.UID, DisplayCredits(r.Amount), DisplayCredits(r.Charged))
	}
	return nil
}

func (d *decider) confirmBound(c ConfirmBound) Verdict {
	existing := d.Allocations.Get(c.PodUID)
	switch {
	case existing == nil:
		return Verdict{Refusal: unknownPod(c.PodUID)}
	case existing.State == AllocationEnded && existing.Node == c.Node:
		return Verdict{} // it was, and is over
	case existing.State == AllocationIntended || existing.State == AllocationReleased:
		// The API server's word: also when the intent was given up because the binding seemed to have failed (B9).
		row := d.Allocations.change(c.PodUID)
		row.enter(AllocationBound)
		row.Node = c.Node
		return Verdict{}
	case existing.Node != c.Node:
		return Verdict{Refusal: alreadyBound(*existing, c.Node)}
	}
	return Verdict{}
}

func (d *decider) releaseAllocation(c ReleaseAllocation) Verdict {
	existing := d.Allocations.Get(c.PodUID)
	if existing != nil && existing.State == AllocationIntended {
		d.Allocations.change(c.PodUID).enter(AllocationReleased)
	}
	return Verdict{}
}

func (d *decider) markSuspect(c MarkSuspect) Verdict {
	existing := d.Allocations.Get(c.PodUID)
	if existing == nil {
		return Verdict{Refusal: unknownPod(c.PodUID)}
	}
	switch existing.State {
	case AllocationEnded:
		return Verdict{Refusal: allocationOver(*existing)}
	case AllocationBound, AllocationMetering, AllocationSuspect:
		row := d.Allocations.change(c.PodUID)
		row.enter(AllocationSuspect)
		row.LastSeen = Instant(c.LastSeen)
	}
	return Verdict{} // an intent is on no node yet
}

func (d *decider) clearSuspect(c ClearSuspect) Verdict {
	existing := d.Allocations.Get(c.PodUID)
	if existing == nil {
		return Verdict{Refusal: unknownPod(c.PodUID)}
	}
	if existing.State == AllocationSuspect {
		row := d.Allocations.change(c.PodUID)
		if row.StartedAt.IsZero() {
			row.enter(AllocationBound)
		} else {
			row.enter(AllocationMetering)
		}
	}
	return Verdict{}
}

func unknownPod(podUID string) *Refusal {
	return refuse(UnknownPod, "no allocation of pod %s is known", podUID)
}
