package slow

import (
	"cmp"
	"slices"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// Rows is everything that a ledger says, in a form that any ledger can be brought into: rows by their keys, entries in their
// order. Left out are what a database alone decides (revisions, numbers of entries) and words for people.
type Rows struct {
	Accounts      map[string]ledger.Account
	Lots          map[string]ledger.Lot
	Reservations  map[string]ledger.Reservation
	Allocations   map[string]ledger.Allocation
	Intervals     map[string][]ledger.Interval // by pod, in the order of time
	Devices       map[string]ledger.DeviceHold
	Entries       []ledger.Entry
	Discrepancies map[string]ledger.Discrepancy
}

// Rows works everything out from the lists.
func (l *Ledger) Rows() Rows {
	rows := NewRows()
	for _, a := range l.accounts {
		rows.AddAccount(l.accountRow(a))
	}
	for _, one := range l.lots {
		rows.AddLot(ledger.Lot{
			Key: one.key, Account: one.account, Amount: one.amount, Free: l.freeOf(one), Held: l.heldOf(one.key, ""),
			Expired: l.expiredOf(one), ExpiresAt: one.expires,
		})
	}
	for _, h := range l.holds {
		row := h.Reservation
		row.Charged = l.chargedOn(h).amount()
		for _, one := range l.lotsOf(h.Payer) {
			if held := l.heldOf(one.key, h.UID); held > 0 && h.Open() {
				row.Takes = append(row.Takes, ledger.Take{Lot: one.key, Amount: held})
			}
		}
		rows.AddReservation(row)
	}
	for _, a := range l.attempts {
		row := a.Allocation
		row.Charged, row.Refunded = l.sumOf(a.PodUID, ledger.EntryCharge), l.sumOf(a.PodUID, ledger.EntryRefund)
		rows.AddAllocation(row)
	}
	for _, p := range l.pieces {
		rows.AddInterval(p)
	}
	for _, s := range l.sightings {
		for _, one := range l.sightingsOf(s.GPUUUID) {
			rows.AddDevice(one)
		}
	}
	for _, e := range l.entries {
		rows.AddEntry(e.Entry)
	}
	for _, d := range l.discrepancies {
		rows.AddDiscrepancy(d)
	}
	return rows
}

func (l *Ledger) accountRow(a account) ledger.Account {
	row := ledger.Account{
		Name: a.name, Parent: a.parent, Policy: a.policy, PolicyVersion: a.version, Frozen: a.frozen,
		Balance: l.balance(a.name).amount(), Reserved: l.reserved(a.name).amount(),
		Held: l.held(a.name).amount(), Charged: l.allCharged(a.name).amount(), Running: l.running(a.name),
		SubtreeBalance: l.sumBelow(a.name, l.balance).amount(), SubtreeReserved: l.sumBelow(a.name, l.reserved).amount(),
		SubtreeHeld: l.sumBelow(a.name, l.held).amount(), SubtreeRunning: l.subtreeRunning(a.name),
		SubtreeOverspent: l.sumBelow(a.name, l.overspent).amount(), SubtreeSpent: l.subtreeSpent(a.name).amount(),
		SpentSince: a.spentSince, RefilledAt: a.refilled, DueAt: l.dueAt(a.name),
	}
	for _, e := range l.entries {
		if e.Debit == a.name || e.Credit == a.name || e.Spender == a.name {
			row.LastEntryAt = latest(row.LastEntryAt, e.RecordedAt)
		}
	}
	return row
}

// NewRows is for filling.
func NewRows() Rows {
	return Rows{
		Accounts: make(map[string]ledger.Account), Lots: make(map[string]ledger.Lot), Reservations: make(map[string]ledger.Reservation),
		Allocations: make(map[string]ledger.Allocation), Intervals: make(map[string][]ledger.Interval),
		Devices: make(map[string]ledger.DeviceHold), Discrepancies: make(map[string]ledger.Discrepancy),
	}
}

// AddAccount and its like put a row in, without what is left out of the comparison.
func (r *Rows) AddAccount(a ledger.Account) {
	a.Revision = 0
	r.Accounts[a.Name] = a
}

// AddLot see AddAccount.
func (r *Rows) AddLot(one ledger.Lot) { r.Lots[one.Key] = one }

// AddReservation see AddAccount.
func (r *Rows) AddReservation(one ledger.Reservation) {
	if len(one.Takes) == 0 {
		one.Takes = nil
	}
	r.Reservations[one.UID] = one
}

// AddAllocation see AddAccount.
func (r *Rows) AddAllocation(a ledger.Allocation) { r.Allocations[a.PodUID] = a }

// AddInterval see AddAccount.
func (r *Rows) AddInterval(i ledger.Interval) {
	all := append(r.Intervals[i.PodUID], i)
	slices.SortFunc(all, func(a, b ledger.Interval) int { return a.Start.Compare(b.Start) })
	r.Intervals[i.PodUID] = all
}

// AddDevice see AddAccount.
func (r *Rows) AddDevice(h ledger.DeviceHold) { r.Devices[ledger.DeviceKey(h.GPUUUID, h.PodUID)] = h }

// AddEntry see AddAccount.
func (r *Rows) AddEntry(e ledger.Entry) {
	e.ID = 0
	if e.Kind != ledger.EntryGrant && e.Kind != ledger.EntryAdjustment && e.Kind != ledger.EntryTransfer {
		e.Reason = "" // the others' are composed
	}
	e.Draws = addUp(e.Draws)
	r.Entries = append(r.Entries, e)
}

// addUp is one draw per lot, in the order of keys.
func addUp(draws []ledger.Take) (sums []ledger.Take) {
	for _, draw := range draws {
		i := slices.IndexFunc(sums, func(known ledger.Take) bool { return known.Lot == draw.Lot })
		if i < 0 {
			sums = append(sums, draw)
		} else {
			sums[i].Amount += draw.Amount
		}
	}
	slices.SortFunc(sums, func(a, b ledger.Take) int { return cmp.Compare(a.Lot, b.Lot) })
	return sums
}

// AddDiscrepancy see AddAccount.
func (r *Rows) AddDiscrepancy(d ledger.Discrepancy) {
	d.Ledger, d.Other, d.Resolution, d.ResolvedBy = "", "", "", ""
	r.Discrepancies[d.Key] = d
}

// Answer is what of a verdict the slow ledger answers too: no rows, no words.
func Answer(v ledger.Verdict) ledger.Verdict {
	v.Reservation, v.Allocation, v.Account = nil, nil, nil
	if v.Refusal != nil {
		refusal := *v.Refusal
		refusal.Message = ""
		v.Refusal = &refusal
	}
	return v
}

// Count is how many entries there are, the highest number that an adjustment may correct.
func (l *Ledger) Count() int { return len(l.entries) }

// EntryKey is the kind and key of an entry by its number, counted from 1.
func (l *Ledger) EntryKey(number int64) (kind ledger.EntryKind, key string) {
	e := l.entries[number-1]
	return e.Kind, e.Key
}
