package ledger

import (
	"fmt"
	"time"
)

func (d *decider) endAllocation(c EndAllocation) Verdict {
	c.StartedAt, c.EndedAt = Instant(c.StartedAt), Instant(c.EndedAt)
	existing := d.Allocations.Get(c.PodUID)
	if existing == nil {
		return Verdict{Refusal: unknownPod(c.PodUID)}
	}
	if refusal := d.inTheFuture("pod end", c.EndedAt); refusal != nil {
		return Verdict{Refusal: refusal}
	}
	if existing.State == AllocationEnded {
		if existing.EndedAt.Equal(c.EndedAt) {
			return Verdict{Replayed: true}
		}
		return Verdict{Refusal: allocationOver(*existing)}
	}
	neverHeld := c.StartedAt.IsZero() && existing.StartedAt.IsZero()
	a := *existing
	if a.StartedAt.IsZero() {
		a.StartedAt = c.StartedAt
	}
	a.EndedAt = d.endOf(a, c)
	var charge Microcredits
	if !neverHeld {
		var refusal *Refusal
		if charge, refusal = d.deriveGaps(a); refusal != nil {
			return Verdict{Refusal: refusal}
		}
		d.noteEndDiscrepancies(a, c)
	}
	row := d.Allocations.change(c.PodUID)
	row.enter(AllocationEnded)
	row.StartedAt, row.EndedAt = a.StartedAt, a.EndedAt
	if c.EndUnknown {
		d.addDiscrepancy(Discrepancy{
			Key: "end-unknown:" + a.PodUID, Kind: EndUnknown, PodUID: a.PodUID, Account: a.Account,
			Ledger: "charged until " + stamp(a.EndedAt), Other: c.Reason,
		}, d.now)
	}
	return Verdict{Charged: charge}
}

// endOf is when the allocation's held time ends. A caller that says the pod never held its GPUs, although a start is
// known, ends it with what was metered: charges stand (I9), and nothing is added.
func (d *decider) endOf(a Allocation, c EndAllocation) time.Time {
	if c.StartedAt.IsZero() && !a.StartedAt.IsZero() {
		return later(a.StartedAt, d.timeline(a.PodUID).lastEnd())
	}
	return later(a.StartedAt, c.EndedAt)
}

// deriveGaps charges what of the pod's time no interval covers, and marks it.
func (d *decider) deriveGaps(a Allocation) (Microcredits, *Refusal) {
	whole := span{a.StartedAt, a.EndedAt}
	if !whole.start.Before(whole.end) {
		return 0, nil
	}
	charge, refusal := d.chargeGaps(a, whole)
	if refusal != nil {
		return 0, refusal
	}
	metered := d.timeline(a.PodUID)
	for _, gap := range metered.gaps(whole) {
		metered.insert(Interval{
			PodUID: a.PodUID, Start: gap.start, End: gap.end, Source: SourceDerived,
			Charge: mustCharge(a, gap), ReceivedAt: d.now,
		})
	}
	return charge, nil
}

// noteEndDiscrepancies keeps where the caller's word about the pod's time differs from what was metered.
func (d *decider) noteEndDiscrepancies(a Allocation, c EndAllocation) {
	lastEnd := d.timeline(a.PodUID).lastEnd()
	metered := fmt.Sprintf("started %s, metered until %s", stamp(a.StartedAt), stamp(lastEnd))
	switch {
	case c.StartedAt.IsZero() && lastEnd.IsZero(): // a start was reported, but the pod was rejected: nothing was held
	case c.StartedAt.IsZero():
		d.addDiscrepancy(Discrepancy{
			Key: "start:" + a.PodUID + ":never", Kind: StartDiffers, PodUID: a.PodUID, Account: a.Account,
			Ledger: metered, Other: "the pod never held its GPUs: " + c.Reason,
		}, d.now)
	case !c.StartedAt.Equal(a.StartedAt):
		d.startDiffers(a, c.StartedAt)
	}
	if lastEnd.After(a.EndedAt) {
		d.addDiscrepancy(Discrepancy{
			Key: "after-end:" + a.PodUID, Kind: IntervalOutsidePod, PodUID: a.PodUID, Account: a.Account,
			Ledger: metered + "; the charges stand", Other: "ended " + stamp(c.EndedAt),
		}, d.now)
	}
}
