package slow

import "github.com/gpubank/gpubank/pkg/ledger"

func (l *Ledger) attempt(pod string) *attempt {
	for i := range l.attempts {
		if l.attempts[i].PodUID == pod {
			return &l.attempts[i]
		}
	}
	return nil
}

func (l *Ledger) allocate(c ledger.Allocate) ledger.Verdict { return l.place(c, true) }

// place is an Allocate; not limited, it does not ask what the account may reserve, run and sum up.
func (l *Ledger) place(c ledger.Allocate, limited bool) ledger.Verdict {
	before := l.attempt(c.PodUID)
	if before != nil {
		switch {
		case before.Reservation != c.Reservation || before.Account != c.Account:
			return refused(ledger.TermsDiffer)
		case before.State == ledger.AllocationEnded:
			return refused(ledger.AllocationOver)
		case before.State == ledger.AllocationIntended, before.State == ledger.AllocationReleased:
		case before.Node != c.Node:
			return refused(ledger.AlreadyBound)
		default:
			return ledger.Verdict{RateVersion: before.RateVersion, Replayed: true}
		}
	}
	h, isNew := hold{}, false
	switch has := l.hold(c.Reservation); {
	case has == nil && c.Hold != nil:
		planned, instead := l.plan(*c.Hold, c.AlreadyRunning || !limited)
		if instead != nil {
			return *instead
		}
		h, isNew = planned, true
	case has == nil || !has.Open():
		return refused(ledger.NoReservation)
	case has.Account != c.Account || has.Class != c.Class:
		return refused(ledger.TermsDiffer)
	default:
		h = *has
	}
	if !c.AlreadyRunning {
		gpus := c.GPUs
		for _, other := range l.attempts {
			if other.Reservation == c.Reservation && other.PodUID != c.PodUID && other.Open() {
				gpus += other.GPUs
			}
		}
		if gpus > h.MaxGPUs || l.remaining(h) == 0 {
			return refused(ledger.HoldExceeded)
		}
		if h.State == ledger.Held && limited {
			for _, name := range l.above(c.Account) {
				if most := l.account(name).policy.RunningJobs; most > 0 && l.subtreeRunning(name) >= most {
					return ledger.Verdict{Refusal: &ledger.Refusal{Code: ledger.RunningLimited, Account: name}}
				}
			}
		}
	}
	switch {
	case isNew && limited:
		if !l.try(func() { l.open(h) }) {
			return refused(ledger.OutOfRange)
		}
	case isNew:
		l.open(h)
	}
	l.hold(c.Reservation).State = ledger.Active
	placed := attempt{ledger.Allocation{
		PodUID: c.PodUID, Pod: c.Pod, Reservation: c.Reservation, Account: c.Account, Node: c.Node, Class: c.Class,
		RateVersion: h.RateVersion, Rate: h.Rate, GPUs: c.GPUs, LeaderEpoch: c.LeaderEpoch,
		State: ledger.AllocationIntended, IntendedAt: l.now,
	}}
	if before == nil {
		l.attempts = append(l.attempts, placed)
	} else {
		*l.attempt(c.PodUID) = placed
	}
	return ledger.Verdict{RateVersion: h.RateVersion}
}

func (l *Ledger) confirmBound(c ledger.ConfirmBound) ledger.Verdict {
	a := l.attempt(c.PodUID)
	switch {
	case a == nil:
		return refused(ledger.UnknownPod)
	case a.State == ledger.AllocationIntended, a.State == ledger.AllocationReleased:
		a.State, a.Node = ledger.AllocationBound, c.Node
	case a.Node != c.Node:
		return refused(ledger.AlreadyBound)
	}
	return ledger.Verdict{}
}

func (l *Ledger) releaseAllocation(c ledger.ReleaseAllocation) ledger.Verdict {
	if a := l.attempt(c.PodUID); a != nil && a.State == ledger.AllocationIntended {
		a.State = ledger.AllocationReleased
	}
	return ledger.Verdict{}
}

func (l *Ledger) markSuspect(c ledger.MarkSuspect) ledger.Verdict {
	a := l.attempt(c.PodUID)
	if a == nil {
		return refused(ledger.UnknownPod)
	}
	switch a.State {
	case ledger.AllocationEnded:
		return refused(ledger.AllocationOver)
	case ledger.AllocationBound, ledger.AllocationMetering, ledger.AllocationSuspect:
		a.State, a.LastSeen = ledger.AllocationSuspect, microsecond(c.LastSeen)
	}
	return ledger.Verdict{}
}

func (l *Ledger) clearSuspect(c ledger.ClearSuspect) ledger.Verdict {
	a := l.attempt(c.PodUID)
	switch {
	case a == nil:
		return refused(ledger.UnknownPod)
	case a.State != ledger.AllocationSuspect:
	case a.StartedAt.IsZero():
		a.State = ledger.AllocationBound
	default:
		a.State = ledger.AllocationMetering
	}
	return ledger.Verdict{}
}
