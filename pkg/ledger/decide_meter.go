package ledger

import (
	"fmt"
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
		return Verdict{Refusal: allocationOver(*existing), Allocation: copyOf(existing)}
	}
	d.fixStart(c.PodUID, startedAt)
	return Verdict{Allocation: copyOf(d.Allocations.Get(c.PodUID))}
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
		return Verdict{Allocation: copyOf(existing), Replayed: true}
	}
	a := *existing
	if a.StartedAt.IsZero() && a.State != AllocationEnded {
		a.StartedAt = c.PodStartedAt
	}
	held := heldPart(a, reported)
	if !held.start.Before(held.end) {
		d.outsidePod(a, reported)
		return Verdict{Allocation: copyOf(existing), Refusal: refuse(OutsidePod,
			"interval [%s, %s) is outside the pod's time [%s, %s); it is kept as a discrepancy",
			stamp(c.Start), stamp(c.End), stamp(a.StartedAt), stamp(a.EndedAt))}
	}
	if metered.has(held) {
		d.outsidePod(a, reported)
		return Verdict{Allocation: copyOf(existing), Replayed: true}
	}
	if refusal := d.checkConflict(a, reported, held); refusal != nil {
		return Verdict{Refusal: refusal, Allocation: copyOf(existing)}
	}
	charge, refusal := d.chargeGaps(a, held)
	if refusal != nil {
		return Verdict{Refusal: refusal, Allocation: copyOf(existing)}
	}

	d.fixStart(c.PodUID, c.PodStartedAt)
	price := func(w span) Microcredits { return mustCharge(a, w) }
	metered.clear(held, price) // a mark for time that nobody had measured gives way; its money stays
	metered.insert(Interval{
		PodUID: c.PodUID, Start: held.start, End: held.end, Source: SourceAgent, Charge: price(held), ReceivedAt: d.now,
	})
	d.outsidePod(a, reported)
	d.noteDevices(a, c, held)
	return Verdict{Allocation: copyOf(d.Allocations.Get(c.PodUID)), Charged: charge}
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
	if refusal := d.takeFromHold(a, total); refusal != nil {
		return 0, refusal
	}
	for _, gap := range gaps {
		if amount := mustCharge(a, gap); amount > 0 { // an interval too short to cost anything makes no entry
			d.post(Entry{
				Key:  fmt.Sprintf("charge:%s:%d:%d", a.PodUID, gap.start.UnixMicro(), gap.end.UnixMicro()),
				Kind: EntryCharge, Debit: a.Account, Credit: SystemRevenue, Amount: amount,
				Reservation: a.Reservation, Allocation: a.PodUID, OccurredAt: gap.end,
			})
		}
	}
	return total, nil
}

// takeFromHold moves a charge out of the reservation and the account. Beyond what the hold has left it is overrun,
// drawn from the balance alone (I9).
func (d *decider) takeFromHold(a Allocation, charge Microcredits) *Refusal {
	if charge == 0 {
		return nil
	}
	after := *d.Reservations.Get(a.Reservation)
	before := after.Remaining()
	fits := false
	if after.Charged, fits = addWithin(after.Charged, charge); !fits {
		return sumOutOfRange(a.Account)
	}
	given := before - after.Remaining()
	if refusal := d.move(a.Account, movement{balance: -charge, reserved: -given, charged: charge}); refusal != nil {
		return refusal
	}
	d.Reservations.change(a.Reservation).Charged = after.Charged
	d.Allocations.change(a.PodUID).Charged += charge
	return nil
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
		d.noteSharedDevice(a, gpu, held)
		key := DeviceKey(gpu, a.PodUID)
		own := d.Devices.Get(key)
		if own == nil {
			hold := DeviceHold{GPUUUID: gpu, PodUID: a.PodUID, Start: held.start, End: held.end}
			d.Devices.insert(key, hold)
			d.indexDevice(hold)
		} else if held.start.Before(own.Start) || held.end.After(own.End) {
			row := d.Devices.change(key)
			row.Start, row.End = earlier(row.Start, held.start), later(row.End, held.end)
		}
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
