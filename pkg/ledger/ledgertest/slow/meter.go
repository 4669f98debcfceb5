package slow

import (
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/gpubank/gpubank/pkg/ledger"
)

func unix(seconds int64) time.Time { return time.Unix(seconds, 0).UTC() }

// priceUpTo is what an attempt costs from its start up to a moment, rounded down.
func priceUpTo(a attempt, t time.Time) *total {
	price := big.NewInt(int64(a.Rate))
	price.Mul(price, big.NewInt(a.GPUs))
	price.Mul(price, big.NewInt(t.UnixMicro()-a.StartedAt.UnixMicro()))
	return &total{*price.Div(price, big.NewInt(1_000_000))}
}

// priceOf is I4.
func priceOf(a attempt, start, end time.Time) ledger.Microcredits {
	price := priceUpTo(a, end)
	price.Sub(&price.Int, &priceUpTo(a, start).Int)
	return price.amount()
}

func (l *Ledger) disagree(key string, kind ledger.DiscrepancyKind, pod string) {
	if slices.ContainsFunc(l.discrepancies, func(d ledger.Discrepancy) bool { return d.Key == key }) {
		return
	}
	d := ledger.Discrepancy{Key: key, Kind: kind, PodUID: pod, FoundAt: l.now}
	if a := l.attempt(pod); a != nil {
		d.Account = a.Account
	}
	l.discrepancies = append(l.discrepancies, d)
}

func (l *Ledger) startDiffers(pod string, reported time.Time) {
	l.disagree("start:"+pod+":"+reported.Format("2006-01-02T15:04:05.999999Z"), ledger.StartDiffers, pod)
}

func (l *Ledger) inTheFuture(t time.Time) bool { return t.Sub(l.now) > 30*time.Second }

func (l *Ledger) recordStart(c ledger.RecordStart) ledger.Verdict {
	a, started := l.attempt(c.PodUID), microsecond(c.StartedAt)
	switch {
	case a == nil:
		return refused(ledger.UnknownPod)
	case l.inTheFuture(started):
		return refused(ledger.InTheFuture)
	case a.State == ledger.AllocationEnded && a.StartedAt.IsZero():
		l.startDiffers(c.PodUID, started)
		return refused(ledger.AllocationOver)
	}
	l.startsAt(c.PodUID, started)
	return ledger.Verdict{}
}

// startsAt: the first report stands.
func (l *Ledger) startsAt(pod string, started time.Time) {
	a := l.attempt(pod)
	if !a.StartedAt.IsZero() {
		if !a.StartedAt.Equal(started) {
			l.startDiffers(pod, started)
		}
		return
	}
	a.StartedAt = started
	if a.State != ledger.AllocationSuspect {
		a.State = ledger.AllocationMetering
	}
}

func (l *Ledger) recordInterval(c ledger.RecordInterval) ledger.Verdict {
	start, end := microsecond(c.Start), microsecond(c.End)
	if l.inTheFuture(end) {
		return refused(ledger.InTheFuture)
	}
	found := l.attempt(c.PodUID)
	if found == nil || found.Node != c.Node {
		if l.now.Sub(end) > 10*time.Minute {
			l.disagree("unknown-allocation:"+c.PodUID+":"+c.Node, ledger.UnknownAllocation, c.PodUID)
		}
		return refused(ledger.UnknownPod)
	}
	if l.reported(c.PodUID, start, end) {
		return ledger.Verdict{Replayed: true}
	}
	a := *found
	if a.StartedAt.IsZero() && a.State != ledger.AllocationEnded {
		a.StartedAt = microsecond(c.PodStartedAt)
	}
	from, to := latest(start, a.StartedAt), end
	if a.State == ledger.AllocationEnded && a.EndedAt.Before(to) {
		to = a.EndedAt
	}
	outside := func() {
		if !from.Equal(start) || !to.Equal(end) {
			l.disagree(fmt.Sprintf("outside:%s:%d:%d", c.PodUID, start.UnixMicro(), end.UnixMicro()), ledger.IntervalOutsidePod, c.PodUID)
		}
	}
	if a.StartedAt.IsZero() || !from.Before(to) {
		from, to = time.Time{}, time.Time{}
		outside()
		return refused(ledger.OutsidePod)
	}
	if l.reported(c.PodUID, from, to) {
		outside()
		return ledger.Verdict{Replayed: true}
	}
	for _, p := range l.pieces {
		if p.PodUID == c.PodUID && p.Source == ledger.SourceAgent && p.Start.Before(to) && from.Before(p.End) {
			l.disagree(fmt.Sprintf("conflict:%s:%d:%d", c.PodUID, start.UnixMicro(), end.UnixMicro()), ledger.IntervalConflict, c.PodUID)
			return refused(ledger.Conflict)
		}
	}
	charged, fits := l.chargeUncovered(a, from, to)
	if !fits {
		return refused(ledger.OutOfRange)
	}
	l.startsAt(c.PodUID, microsecond(c.PodStartedAt))
	l.replaceMarks(a, from, to)
	l.pieces = append(l.pieces, ledger.Interval{
		PodUID: c.PodUID, Start: from, End: to, Source: ledger.SourceAgent, Charge: priceOf(a, from, to), ReceivedAt: l.now,
	})
	outside()
	l.sight(c, from, to)
	return ledger.Verdict{Charged: charged}
}

// reported: the agent's own interval with exactly these bounds is there.
func (l *Ledger) reported(pod string, start, end time.Time) bool {
	return slices.ContainsFunc(l.pieces, func(p ledger.Interval) bool {
		return p.PodUID == pod && p.Source == ledger.SourceAgent && p.Start.Equal(start) && p.End.Equal(end)
	})
}

// stretch is [start, end).
type stretch struct{ start, end time.Time }

// uncovered is what of a stretch no piece of a pod covers: it is cut wherever a piece begins or ends, each part is looked up,
// and neighbours are joined.
func (l *Ledger) uncovered(pod string, start, end time.Time) (open []stretch) {
	cuts := []time.Time{start, end}
	for _, p := range l.pieces {
		for _, cut := range []time.Time{p.Start, p.End} {
			if p.PodUID == pod && cut.After(start) && cut.Before(end) {
				cuts = append(cuts, cut)
			}
		}
	}
	slices.SortFunc(cuts, time.Time.Compare)
	for i := 1; i < len(cuts); i++ {
		from, to := cuts[i-1], cuts[i]
		covered := slices.ContainsFunc(l.pieces, func(p ledger.Interval) bool {
			return p.PodUID == pod && !p.Start.After(from) && !p.End.Before(to)
		})
		switch {
		case covered || !from.Before(to):
		case len(open) > 0 && open[len(open)-1].end.Equal(from):
			open[len(open)-1].end = to
		default:
			open = append(open, stretch{from, to})
		}
	}
	return open
}

// chargeUncovered charges what of a stretch is not charged yet, if the sums have room for it.
func (l *Ledger) chargeUncovered(a attempt, start, end time.Time) (charged ledger.Microcredits, fits bool) {
	if !priceUpTo(a, end).fits() {
		return 0, false
	}
	fits = l.try(func() {
		for _, part := range l.uncovered(a.PodUID, start, end) {
			if amount := priceOf(a, part.start, part.end); amount > 0 {
				l.charge(a, part, amount)
				charged += amount
			}
		}
	})
	return charged, fits
}

// charge draws what the hold has left from what it took, earliest expiring first, and the rest from the payer's free lots.
func (l *Ledger) charge(a attempt, part stretch, amount ledger.Microcredits) {
	h := *l.hold(a.Reservation)
	inside := min(amount, l.remaining(h))
	var fromHold []ledger.Take
	left := inside
	for _, one := range l.lotsOf(h.Payer) {
		if h.Open() {
			if used := min(left, l.heldOf(one.key, h.UID)); used > 0 {
				fromHold = append(fromHold, ledger.Take{Lot: one.key, Amount: used})
				left -= used
			}
		}
	}
	l.post(ledger.Entry{
		Key:  fmt.Sprintf("charge:%s:%d:%d", a.PodUID, part.start.UnixMicro(), part.end.UnixMicro()),
		Kind: ledger.EntryCharge, Debit: h.Payer, Credit: ledger.SystemRevenue, Spender: a.Account, Amount: amount,
		Draws:       slices.Concat(fromHold, l.draw(h.Payer, amount-inside)),
		Reservation: a.Reservation, Allocation: a.PodUID, OccurredAt: part.end,
	}, fromHold)
}

// replaceMarks takes derived time out of a stretch that was measured after all.
func (l *Ledger) replaceMarks(a attempt, start, end time.Time) {
	var kept []ledger.Interval
	for _, p := range l.pieces {
		if p.PodUID != a.PodUID || !p.Start.Before(end) || !start.Before(p.End) {
			kept = append(kept, p)
			continue
		}
		for _, rest := range []stretch{{p.Start, start}, {end, p.End}} {
			if rest.start.Before(rest.end) {
				part := p
				part.Start, part.End, part.Charge = rest.start, rest.end, priceOf(a, rest.start, rest.end)
				kept = append(kept, part)
			}
		}
	}
	l.pieces = kept
}

// sight keeps which GPUs were reported, and who else was on them.
func (l *Ledger) sight(c ledger.RecordInterval, start, end time.Time) {
	gpus := slices.Clone(c.GPUUUIDs)
	slices.Sort(gpus)
	gpus = slices.Compact(gpus)
	if len(gpus) == 0 {
		return
	}
	a := l.attempt(c.PodUID)
	if len(a.GPUUUIDs) == 0 {
		a.GPUUUIDs = gpus
	}
	if int64(len(gpus)) != a.GPUs {
		l.disagree(fmt.Sprintf("gpu-count:%s:%d", c.PodUID, len(gpus)), ledger.GPUCountDiffers, c.PodUID)
	}
	for _, gpu := range gpus {
		l.sightings = append(l.sightings, ledger.DeviceHold{GPUUUID: gpu, PodUID: c.PodUID, Start: start, End: end})
		all := l.sightingsOf(gpu)
		own := all[slices.IndexFunc(all, func(s ledger.DeviceHold) bool { return s.PodUID == c.PodUID })]
		for _, other := range all {
			if other.PodUID != c.PodUID && other.Start.Before(own.End) && own.Start.Before(other.End) {
				pods := []string{c.PodUID, other.PodUID}
				slices.Sort(pods)
				l.disagree("gpu-twice:"+gpu+":"+pods[0]+":"+pods[1], ledger.GPUChargedTwice, c.PodUID)
			}
		}
	}
}

// sightingsOf is, for each pod, from when to when it was seen on a GPU: it is the pod's in between too.
func (l *Ledger) sightingsOf(gpu string) (spans []ledger.DeviceHold) {
	for _, s := range l.sightings {
		if s.GPUUUID != gpu {
			continue
		}
		i := slices.IndexFunc(spans, func(known ledger.DeviceHold) bool { return known.PodUID == s.PodUID })
		if i < 0 {
			spans = append(spans, s)
			continue
		}
		spans[i].End = latest(spans[i].End, s.End)
		if s.Start.Before(spans[i].Start) {
			spans[i].Start = s.Start
		}
	}
	return spans
}

// lastEnd is when the last piece of a pod ends.
func (l *Ledger) lastEnd(pod string) (end time.Time) {
	for _, p := range l.pieces {
		if p.PodUID == pod {
			end = latest(end, p.End)
		}
	}
	return end
}

func (l *Ledger) endAllocation(c ledger.EndAllocation) ledger.Verdict {
	started, ended := microsecond(c.StartedAt), microsecond(c.EndedAt)
	found := l.attempt(c.PodUID)
	switch {
	case found == nil:
		return refused(ledger.UnknownPod)
	case l.inTheFuture(ended):
		return refused(ledger.InTheFuture)
	case found.State == ledger.AllocationEnded && found.EndedAt.Equal(ended):
		return ledger.Verdict{Replayed: true}
	case found.State == ledger.AllocationEnded:
		return refused(ledger.AllocationOver)
	}
	a := *found
	neverHeld := started.IsZero() && a.StartedAt.IsZero()
	if a.StartedAt.IsZero() {
		a.StartedAt = started
	}
	a.EndedAt = latest(a.StartedAt, ended)
	if started.IsZero() && !a.StartedAt.IsZero() { // held nothing, says the caller: it ends with what was metered
		a.EndedAt = latest(a.StartedAt, l.lastEnd(c.PodUID))
	}
	var charged ledger.Microcredits
	if !neverHeld && a.StartedAt.Before(a.EndedAt) {
		gaps, fits := l.uncovered(c.PodUID, a.StartedAt, a.EndedAt), false
		if charged, fits = l.chargeUncovered(a, a.StartedAt, a.EndedAt); !fits {
			return refused(ledger.OutOfRange)
		}
		for _, gap := range gaps {
			l.pieces = append(l.pieces, ledger.Interval{
				PodUID: c.PodUID, Start: gap.start, End: gap.end, Source: ledger.SourceDerived,
				Charge: priceOf(a, gap.start, gap.end), ReceivedAt: l.now,
			})
		}
	}
	if !neverHeld {
		switch last := l.lastEnd(c.PodUID); {
		case started.IsZero() && last.IsZero():
		case started.IsZero():
			l.disagree("start:"+c.PodUID+":never", ledger.StartDiffers, c.PodUID)
		case !started.Equal(a.StartedAt):
			l.startDiffers(c.PodUID, started)
		}
		if l.lastEnd(c.PodUID).After(a.EndedAt) {
			l.disagree("after-end:"+c.PodUID, ledger.IntervalOutsidePod, c.PodUID)
		}
	}
	row := l.attempt(c.PodUID)
	row.State, row.StartedAt, row.EndedAt = ledger.AllocationEnded, a.StartedAt, a.EndedAt
	if c.EndUnknown {
		l.disagree("end-unknown:"+c.PodUID, ledger.EndUnknown, c.PodUID)
	}
	return ledger.Verdict{Charged: charged}
}

func (l *Ledger) refund(c ledger.Refund) ledger.Verdict {
	a := l.attempt(c.PodUID)
	switch {
	case a == nil:
		return refused(ledger.UnknownPod)
	case a.State != ledger.AllocationEnded:
		return refused(ledger.StillRunning)
	case a.RefundedFor != "":
		return refused(ledger.AlreadyRefunded)
	}
	amount := l.refundable(*a, c)
	if amount == 0 {
		return ledger.Verdict{}
	}
	if !l.try(func() {
		a := l.attempt(c.PodUID)
		a.RefundedFor = c.Cause
		l.post(ledger.Entry{
			Key: "refund:" + c.PodUID, Kind: ledger.EntryRefund, Debit: ledger.SystemRevenue, Credit: l.hold(a.Reservation).Payer,
			Spender: a.Account, Amount: amount, Reservation: a.Reservation, Allocation: c.PodUID, OccurredAt: a.EndedAt,
		}, nil)
	}) {
		return refused(ledger.OutOfRange)
	}
	return ledger.Verdict{Refunded: amount}
}

func (l *Ledger) refundable(a attempt, c ledger.Refund) ledger.Microcredits {
	charged, policy := l.sumOf(c.PodUID, ledger.EntryCharge), l.account(a.Account).policy.Refunds
	percent := policy.FailedPercent
	switch {
	case c.Cause == ledger.RefundDeviceFault && policy.DeviceFault:
		return charged
	case c.Cause == ledger.RefundPreempted && policy.PreemptedSinceCheckpoint:
		since := latest(a.StartedAt, microsecond(c.CheckpointedAt))
		if a.StartedAt.IsZero() || !since.Before(a.EndedAt) {
			return 0
		}
		return min(charged, priceOf(a, since, a.EndedAt))
	case c.Cause == ledger.RefundPreempted:
		percent = policy.PreemptedPercent
	}
	part := new(big.Int).Mul(big.NewInt(int64(charged)), big.NewInt(percent))
	return ledger.Microcredits(part.Div(part, big.NewInt(100)).Int64())
}

// sumOf is a pod's entries of one kind.
func (l *Ledger) sumOf(pod string, kind ledger.EntryKind) ledger.Microcredits {
	sum := new(total)
	for _, e := range l.entries {
		if e.Allocation == pod && e.Kind == kind {
			sum.add(e.Amount)
		}
	}
	return sum.amount()
}
