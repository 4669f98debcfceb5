package ledger

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// bindGrace is how long after an interval its pod may still be unknown without that being kept for a person. Between
// binding and its record lie seconds; ten minutes also cover a restart of the database.
const bindGrace = 10 * time.Minute

func (d *decider) recordStart(c RecordStart) Verdict {
	existing := d.Allocations.Get(c.PodUID)
	if existing == nil {
		return Verdict{Refusal: unknownPod(c.PodUID)}
	}
	startedAt := Instant(c.StartedAt)
	if refusal := d.inTheFuture("pod start", startedAt); refusal != nil {
		return Verdict{Refusal: refusal}
	}
	if existing.State == AllocationEnded && existing.StartedAt.IsZero() {
		d.startDiffers(*existing, startedAt)
		return Verdict{Refusal: allocationOver(*existing)}
	}
	d.fixStart(c.PodUID, startedAt)
	return Verdict{}
}

// fixStart records when the pod started; the first report stands, another is a discrepancy.
func (d *decider) fixStart(podUID string, startedAt time.Time) {
	existing := d.Allocations.Get(podUID)
	if !existing.StartedAt.IsZero() {
		if !existing.StartedAt.Equal(startedAt) {
			d.startDiffers(*existing, startedAt)
		}
		return
	}
	row := d.Allocations.change(podUID)
	row.StartedAt = startedAt
	if row.State != AllocationSuspect { // a late report about a silent node does not bring it back
		row.enter(AllocationMetering)
	}
}

func (d *decider) startDiffers(a Allocation, reported time.Time) {
	d.addDiscrepancy(Discrepancy{
		Key: "start:" + a.PodUID + ":" + stamp(reported), Kind: StartDiffers, PodUID: a.PodUID, Account: a.Account,
		Ledger: "started " + stamp(a.StartedAt), Other: "started " + stamp(reported),
	}, d.now)
}

func (d *decider) recordInterval(c RecordInterval) Verdict {
	c.PodStartedAt, c.Start, c.End = Instant(c.PodStartedAt), Instant(c.Start), Instant(c.End)
	if refusal := d.inTheFuture("interval end", c.End); refusal != nil {
		return Verdict{Refusal: refusal}
	}
	existing := d.Allocations.Get(c.PodUID)
	if existing == nil || existing.Node != c.Node {
		return Verdict{Refusal: d.unknownOnNode(c, existing)}
	}
	reported := span{c.Start, c.End}
	metered := d.timeline(c.PodUID)
	if metered.has(reported) {
		return Verdict{Replayed: true}
	}
	a := *existing
	if a.StartedAt.IsZero() && a.State != AllocationEnded {
		a.StartedAt = c.PodStartedAt
	}
	held := heldPart(a, reported)
	if !held.start.Before(held.end) {
		d.outsidePod(a, reported)
		return Verdict{Refusal: refuse(OutsidePod,
			"interval [%s, %s) is outside the pod's time [%s, %s); it is kept as a discrepancy",
			stamp(c.Start), stamp(c.End), stamp(a.StartedAt), stamp(a.EndedAt))}
	}
	if metered.has(held) {
		d.outsidePod(a, reported)
		return Verdict{Replayed: true}
	}
	if refusal := d.checkConflict(a, reported, held); refusal != nil {
		return Verdict{Refusal: refusal}
	}
	charge, refusal := d.chargeGaps(a, held)
	if refusal != nil {
		return Verdict{Refusal: refusal}
	}

	d.fixStart(c.PodUID, c.PodStartedAt)
	price := func(w span) Microcredits { return mustCharge(a, w) }
	metered.clear(held, price) // a mark for time that nobody had measured gives way; its money stays
	metered.insert(Interval{
		PodUID: c.PodUID, Start: held.start, End: held.end, Source: SourceAgent, Charge: price(held), ReceivedAt: d.now,
	})
	if a.State == AllocationEnded {
		d.loosen(a.PodUID)
	}
	d.outsidePod(a, reported)
	d.noteDevices(a, c, held)
	return Verdict{Charged: charge}
}

// unknownOnNode refuses an interval of a pod that has no allocation on that node. It may follow soon (UnknownPod is
// retryable), and after bindGrace somebody has to look.
func (d *decider) unknownOnNode(c RecordInterval, existing *Allocation) *Refusal {
	refusal, known := unknownPod(c.PodUID), "no allocation"
	if existing != nil {
		refusal = refuse(UnknownPod, "pod %s is allocated on node %s, not on %s", c.PodUID, existing.Node, c.Node)
		known = "allocated on node " + existing.Node
	}
	if d.now.Sub(c.End) > bindGrace {
		d.addDiscrepancy(Discrepancy{
			Key: "unknown-allocation:" + c.PodUID + ":" + c.Node, Kind: UnknownAllocation, PodUID: c.PodUID,
			Account: d.accountOf(c.PodUID), Ledger: known, Other: describeInterval(c),
		}, d.now)
	}
	return refusal
}

// heldPart is the part of w within the pod's own start and end, as far as they are known; empty if there is none, and
// if the allocation ended without ever holding its GPUs.
func heldPart(a Allocation, w span) span {
	if a.StartedAt.IsZero() {
		return span{}
	}
	if w.start.Before(a.StartedAt) {
		w.start = a.StartedAt
	}
	if a.State == AllocationEnded && w.end.After(a.EndedAt) {
		w.end = a.EndedAt
	}
	return w
}

// outsidePod keeps what of a report lies outside the pod's time.
func (d *decider) outsidePod(a Allocation, reported span) {
	held := heldPart(a, reported)
	if held == reported {
		return
	}
	d.addDiscrepancy(Discrepancy{
		Key:  fmt.Sprintf("outside:%s:%d:%d", a.PodUID, reported.start.UnixMicro(), reported.end.UnixMicro()),
		Kind: IntervalOutsidePod, PodUID: a.PodUID, Account: a.Account,
		Ledger: "pod ran [" + stamp(a.StartedAt) + ", " + stamp(a.EndedAt) + ")",
		Other:  "metered [" + stamp(reported.start) + ", " + stamp(reported.end) + ")",
	}, d.now)
}

// checkConflict refuses an interval over time that the agent has already reported in other pieces (I3). What of it is
// not covered yet is not lost: the end of the allocation charges it.
func (d *decider) checkConflict(a Allocation, reported, held span) *Refusal {
	for _, piece := range d.timeline(a.PodUID).overlapping(held) {
		if piece.Source != SourceAgent {
			continue
		}
		d.addDiscrepancy(Discrepancy{
			Key:  fmt.Sprintf("conflict:%s:%d:%d", a.PodUID, reported.start.UnixMicro(), reported.end.UnixMicro()),
			Kind: IntervalConflict, PodUID: a.PodUID, Account: a.Account,
			Ledger: "metered [" + stamp(piece.Start) + ", " + stamp(piece.End) + ")",
			Other:  "metered [" + stamp(reported.start) + ", " + stamp(reported.end) + ")",
		}, d.now)
		return refuse(Conflict, "interval [%s, %s) overlaps [%s, %s), which is already charged; it is kept as a discrepancy",
			stamp(reported.start), stamp(reported.end), stamp(piece.Start), stamp(piece.End))
	}
	return nil
}

// chargeGaps charges what of w no interval covers yet, or refuses and changes nothing. The caller inserts the
// interval or intervals.
func (d *decider) chargeGaps(a Allocation, w span) (Microcredits, *Refusal) {
	if _, err := ChargeBetween(a.Rate, a.GPUs, a.StartedAt, w.start, w.end); err != nil {
		return 0, refuse(OutOfRange, "charge of pod %s: %s", a.PodUID, err)
	}
	var total Microcredits
	gaps := d.timeline(a.PodUID).gaps(w)
	for _, gap := range gaps {
		total += mustCharge(a, gap)
	}
	left, refusal := d.takeFromHold(a, total)
	if refusal != nil {
		return 0, refusal
	}
	payer := d.Reservations.Get(a.Reservation).Payer
	for _, gap := range gaps {
		amount := mustCharge(a, gap)
		if amount == 0 { // an interval too short to cost anything makes no entry
			continue
		}
		draws := d.drawCharge(a.Reservation, amount, min(amount, left))
		left -= min(amount, left)
		d.post(Entry{
			Key:  fmt.Sprintf("charge:%s:%d:%d", a.PodUID, gap.start.UnixMicro(), gap.end.UnixMicro()),
			Kind: EntryCharge, Debit: payer, Credit: SystemRevenue, Spender: a.Account, Amount: amount, Draws: draws,
			Reservation: a.Reservation, Allocation: a.PodUID, OccurredAt: gap.end,
		})
	}
	return total, nil
}

// takeFromHold moves a charge out of the reservation and its accounts, and returns how much of it the hold pays. Beyond
// what the hold has left it is overrun, drawn from the payer's balance alone (I9).
func (d *decider) takeFromHold(a Allocation, charge Microcredits) (fromHold Microcredits, refusal *Refusal) {
	if charge == 0 {
		return 0, nil
	}
	after := *d.Reservations.Get(a.Reservation)
	before := after.Remaining()
	fits := false
	if after.Charged, fits = addWithin(after.Charged, charge); !fits {
		return 0, sumOutOfRange(a.Account)
	}
	fromHold = before - after.Remaining()
	d.beginSpending(after.Payer, a.Account)
	if refusal := d.transact(after.Payer, a.Account, movement{
		balance: -charge, reserved: -fromHold, held: -fromHold, charged: charge,
	}); refusal != nil {
		return 0, refusal
	}
	d.Reservations.change(a.Reservation).Charged = after.Charged
	d.Allocations.change(a.PodUID).Charged += charge
	return fromHold, nil
}

// drawCharge takes a charge out of lots: what the hold pays from those that it took, in their order, and the rest from
// those that are free. What they don't have is permanent credits.
func (d *decider) drawCharge(reservation string, amount, fromHold Microcredits) []Take {
	row := d.Reservations.Get(reservation)
	used, left := d.useTakes(row.Takes, fromHold)
	if len(used) > 0 {
		d.Reservations.change(reservation).Takes = left
	}
	return mergeTakes(append(used, d.drawLots(row.Payer, amount-fromHold)...))
}

// mergeTakes adds up what came out of the same lot, in the order of first mention.
func mergeTakes(takes []Take) []Take {
	var merged []Take
	for _, take := range takes {
		i := slices.IndexFunc(merged, func(m Take) bool { return m.Lot == take.Lot })
		if i < 0 {
			merged = append(merged, take)
		} else {
			merged[i].Amount += take.Amount
		}
	}
	return merged
}

// mustCharge is ChargeBetween for a span whose end was already priced.
func mustCharge(a Allocation, w span) Microcredits {
	charge, err := ChargeBetween(a.Rate, a.GPUs, a.StartedAt, w.start, w.end)
	if err != nil {
		panic("ledger: charge of pod " + a.PodUID + ": " + err.Error())
	}
	return charge
}

// noteDevices keeps which GPUs the pod was metered on, and who else was (I3). The charge follows the allocation's
// number of GPUs: that is what was taken from others.
func (d *decider) noteDevices(a Allocation, c RecordInterval, held span) {
	gpus := sortedSet(c.GPUUUIDs)
	if len(gpus) == 0 {
		return
	}
	if len(a.GPUUUIDs) == 0 {
		d.Allocations.change(a.PodUID).GPUUUIDs = gpus
	}
	if int64(len(gpus)) != a.GPUs {
		d.addDiscrepancy(Discrepancy{
			Key:  fmt.Sprintf("gpu-count:%s:%d", a.PodUID, len(gpus)),
			Kind: GPUCountDiffers, PodUID: a.PodUID, Account: a.Account,
			Ledger: fmt.Sprintf("%d GPUs allocated", a.GPUs), Other: fmt.Sprintf("%d GPUs held: %s", len(gpus), strings.Join(gpus, " ")),
		}, d.now)
	}
	for _, gpu := range gpus {
		key, whole := DeviceKey(gpu, a.PodUID), held
		own := d.Devices.Get(key)
		if own == nil {
			hold := DeviceHold{GPUUUID: gpu, PodUID: a.PodUID, Start: held.start, End: held.end}
			d.Devices.insert(key, hold)
			d.indexDevice(hold)
		} else if whole = (span{earlier(own.Start, held.start), later(own.End, held.end)}); whole != (span{own.Start, own.End}) {
			row := d.Devices.change(key)
			row.Start, row.End = whole.start, whole.end
		}
		// Of the whole time: it is the pod's GPU between its intervals too, whichever of the two pods reports last.
		d.noteSharedDevice(a, gpu, whole)
	}
}

func (d *decider) noteSharedDevice(a Allocation, gpu string, held span) {
	for _, otherPod := range d.devicePods[gpu] {
		other := d.Devices.Get(DeviceKey(gpu, otherPod))
		if otherPod == a.PodUID || !other.Start.Before(held.end) || !held.start.Before(other.End) {
			continue
		}
		d.addDiscrepancy(Discrepancy{
			Key:  GPUChargedTwiceKey(gpu, a.PodUID, otherPod),
			Kind: GPUChargedTwice, PodUID: a.PodUID, Account: a.Account,
			Ledger: fmt.Sprintf("GPU %s metered for pod %s [%s, %s)", gpu, otherPod, stamp(other.Start), stamp(other.End)),
			Other:  fmt.Sprintf("metered for pod %s [%s, %s)", a.PodUID, stamp(held.start), stamp(held.end)),
		}, d.now)
	}
}

// GPUChargedTwiceKey is the key of the discrepancy that two pods were metered on one GPU; the order of the pods does
// not matter.
func GPUChargedTwiceKey(gpu, onePod, otherPod string) string {
	if otherPod < onePod {
		onePod, otherPod = otherPod, onePod
	}
	return "gpu-twice:" + gpu + ":" + onePod + ":" + otherPod
}

func describeInterval(c RecordInterval) string {
	text := fmt.Sprintf("node %s metered [%s, %s)", c.Node, stamp(c.Start), stamp(c.End))
	if len(c.GPUUUIDs) > 0 {
		text += " on " + strings.Join(sortedSet(c.GPUUUIDs), " ")
	}
	return text
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
