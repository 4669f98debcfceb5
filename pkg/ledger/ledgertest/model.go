package ledgertest

import (
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// Audit checks a ledger in memory against what its entries, reservations and intervals add up to from the start. It is
// slow and obvious on purpose: no running sums, no order of time, big integers.
func (m *Memory) Audit() []ledger.Violation {
	a := &auditor{Memory: m}
	a.accounts()
	a.reservations()
	a.allocations()
	a.refunds()
	a.lots()
	a.entries()
	a.times()
	return a.found
}

type auditor struct {
	*Memory
	found []ledger.Violation
}

func (a *auditor) violation(invariant, subject, format string, args ...any) {
	a.found = append(a.found, ledger.Violation{Invariant: invariant, Subject: subject, Detail: fmt.Sprintf(format, args...)})
}

// accounts is I1 and I2.
func (a *auditor) accounts() {
	a.State.Accounts.All(func(name string, row *ledger.Account) {
		want := a.own(name)
		want.Name, want.Parent, want.Policy, want.Revision = row.Name, row.Parent, row.Policy, row.Revision
		want.PolicyVersion, want.Frozen, want.SpentSince = row.PolicyVersion, row.Frozen, row.SpentSince
		want.RefilledAt, want.LastEntryAt, want.DueAt = row.RefilledAt, row.LastEntryAt, row.DueAt
		a.State.Accounts.All(func(below string, _ *ledger.Account) {
			if a.isBelow(below, name) {
				own := a.own(below)
				own.Policy = a.State.Accounts.Get(below).Policy
				want.SubtreeBalance += own.Balance
				want.SubtreeReserved += own.Reserved
				want.SubtreeOverspent += own.Overspent()
				want.SubtreeHeld += own.Held
				want.SubtreeRunning += own.Running
			}
		})
		for _, e := range a.Entries {
			if row.Policy.Spending.Period != "" && e.Spender != "" && a.isBelow(e.Spender, name) && !e.RecordedAt.Before(row.SpentSince) {
				want.SubtreeSpent += spent(e)
			}
		}
		if *row != want {
			a.violation("I2", name, "says %+v, adds up to %+v", *row, want)
		}
		if row.Reserved < 0 || row.Held < 0 || row.Running < 0 || row.Charged < 0 {
			a.violation("I1", name, "reserves %d, holds %d, runs %d, was charged %d", row.Reserved, row.Held, row.Running, row.Charged)
		}
	})
}

// own adds an account's own figures up.
func (m *Memory) own(name string) (sum ledger.Account) {
	for _, e := range m.Entries {
		if e.Credit == name {
			sum.Balance += e.Amount
		}
		if e.Debit == name {
			sum.Balance -= e.Amount
		}
		if e.Spender == name {
			sum.Charged += spent(e)
		}
	}
	m.State.Reservations.All(func(_ string, r *ledger.Reservation) {
		if r.Payer == name {
			sum.Reserved += r.Remaining()
		}
		if r.Account == name {
			sum.Held += r.Remaining()
			if r.State == ledger.Active {
				sum.Running++
			}
		}
	})
	return sum
}

func (m *Memory) isBelow(name, ancestor string) bool {
	for name != "" {
		if name == ancestor {
			return true
		}
		name = m.State.Accounts.Get(name).Parent
	}
	return false
}

// reservations is I5.
func (a *auditor) reservations() {
	a.State.Reservations.All(func(uid string, r *ledger.Reservation) {
		if r.Open() != r.ClosedAt.IsZero() {
			a.violation("I5", uid, "is %s, closed at %s", r.State, r.ClosedAt)
		}
		var charged ledger.Microcredits
		for _, e := range a.Entries {
			if e.Reservation == uid && e.Kind == ledger.EntryCharge {
				charged += e.Amount
			}
		}
		if charged != r.Charged {
			a.violation("I2", uid, "says %d charged, entries add up to %d", r.Charged, charged)
		}
		if overrun := r.Overrun(); r.Open() && r.Remaining()+r.Charged-overrun != r.Amount { // L4
			a.violation("I2", uid, "%d charged and %d remaining of %d", r.Charged, r.Remaining(), r.Amount)
		}
	})
}

// allocations is I3, I4 and I9.
func (a *auditor) allocations() {
	a.State.Allocations.All(func(pod string, row *ledger.Allocation) {
		var charged, entries ledger.Microcredits
		var covered time.Duration
		intervals := a.State.Intervals(pod)
		for i, one := range intervals {
			if !one.Start.Before(one.End) {
				a.violation("I3", pod, "interval [%s, %s)", one.Start, one.End)
			}
			for _, other := range intervals[:i] {
				if one.Start.Before(other.End) && other.Start.Before(one.End) {
					a.violation("I3", pod, "[%s, %s) overlaps [%s, %s)", one.Start, one.End, other.Start, other.End)
				}
			}
			if want := slowCharge(*row, one); one.Charge != want {
				a.violation("I4", pod, "[%s, %s) is charged %d, its price is %d", one.Start, one.End, one.Charge, want)
			}
			charged += one.Charge
			covered += overlap(one, row.StartedAt, row.EndedAt)
		}
		for _, e := range a.Entries {
			if e.Allocation == pod && e.Kind == ledger.EntryCharge {
				entries += e.Amount
			}
		}
		if charged != row.Charged || entries != row.Charged {
			a.violation("I4", pod, "says %d charged, intervals add up to %d and entries to %d", row.Charged, charged, entries)
		}
		if row.State == ledger.AllocationEnded && !row.StartedAt.IsZero() && covered != row.EndedAt.Sub(row.StartedAt) {
			a.violation("I9", pod, "%s of %s are covered", covered, row.EndedAt.Sub(row.StartedAt))
		}
	})
}

func overlap(i ledger.Interval, start, end time.Time) time.Duration {
	if i.Start.After(start) {
		start = i.Start
	}
	if i.End.Before(end) {
		end = i.End
	}
	return max(0, end.Sub(start))
}

// slowCharge is the formula of I4, word by word.
func slowCharge(a ledger.Allocation, i ledger.Interval) ledger.Microcredits {
	upTo := func(t time.Time) int64 {
		price := big.NewInt(int64(a.Rate))
		price.Mul(price, big.NewInt(a.GPUs))
		price.Mul(price, big.NewInt(t.Sub(a.StartedAt).Microseconds()))
		return price.Div(price, big.NewInt(1_000_000)).Int64()
	}
	return ledger.Microcredits(upTo(i.End) - upTo(i.Start))
}

// refunds: of an attempt at most what it was charged (L8), once (L7), to whoever paid.
func (a *auditor) refunds() {
	given := make(map[string]ledger.Microcredits)
	for _, e := range a.Entries {
		if e.Kind != ledger.EntryCharge && e.Kind != ledger.EntryRefund {
			continue
		}
		r, paid := a.State.Reservations.Get(e.Reservation), e.Debit
		if e.Kind == ledger.EntryRefund {
			paid = e.Credit
			if given[e.Allocation] != 0 {
				a.violation("I6", e.Allocation, "was refunded %d and %d", given[e.Allocation], e.Amount)
			}
			given[e.Allocation] += e.Amount
		}
		if paid != r.Payer || e.Spender != r.Account {
			a.violation("I2", e.Key, "is between %s and revenue for %s; the reservation is paid by %s for %s", paid, e.Spender, r.Payer, r.Account)
		}
	}
	a.State.Allocations.All(func(pod string, row *ledger.Allocation) {
		if given[pod] != row.Refunded || row.Refunded > row.Charged || row.Refunded < 0 || (row.Refunded > 0) != (row.RefundedFor != "") {
			a.violation("I2", pod, "says %d of %d given back for %q, entries say %d", row.Refunded, row.Charged, row.RefundedFor, given[pod])
		}
	})
}

// lots: each is what is free and held of it and what entries drew; what is held is what open reservations took, and no
// reservation took more than it has left.
func (a *auditor) lots() {
	drawn, expired, held := make(map[string]ledger.Microcredits), make(map[string]ledger.Microcredits), make(map[string]ledger.Microcredits)
	for _, e := range a.Entries {
		for _, draw := range e.Draws {
			drawn[draw.Lot] += draw.Amount
			if e.Kind == ledger.EntryExpiry {
				expired[draw.Lot] += draw.Amount
			}
			owner := e.Debit
			if e.Kind == ledger.EntryGrant || e.Kind == ledger.EntryTransfer && strings.HasPrefix(draw.Lot, "transfer:"+e.Key+"#") {
				owner = e.Credit // a new lot fills what was missing
			}
			if lot := a.State.Lots.Get(draw.Lot); lot == nil || lot.Account != owner || draw.Amount <= 0 {
				a.violation("I2", e.Key, "draws %d of lot %s of %s", draw.Amount, draw.Lot, owner)
			}
		}
	}
	a.State.Reservations.All(func(uid string, r *ledger.Reservation) {
		var sum ledger.Microcredits
		for i, take := range r.Takes {
			sum += take.Amount
			held[take.Lot] += take.Amount
			lot := a.State.Lots.Get(take.Lot)
			if lot.Account != r.Payer || i > 0 && lot.ExpiresAt.Before(a.State.Lots.Get(r.Takes[i-1].Lot).ExpiresAt) {
				a.violation("I2", uid, "paid by %s took %v", r.Payer, r.Takes)
			}
		}
		if sum > r.Remaining() {
			a.violation("I2", uid, "has %d left and took %d from lots", r.Remaining(), sum)
		}
	})
	a.State.Lots.All(func(key string, lot *ledger.Lot) {
		if lot.Free < 0 || lot.Held != held[key] || lot.Expired != expired[key] || lot.Free+lot.Held+drawn[key] != lot.Amount {
			a.violation("I2", key, "is %+v; %d are held, %d drawn, %d of them expired", *lot, held[key], drawn[key], expired[key])
		}
	})
}

// times: within an account the time of recording never goes back.
func (a *auditor) times() {
	last := make(map[string]time.Time)
	for _, e := range a.Entries {
		for _, side := range []string{e.Debit, e.Credit, e.Spender} {
			if a.State.Accounts.Get(side) == nil {
				continue
			}
			if e.RecordedAt.Before(last[side]) {
				a.violation("I8", e.Key, "of account %s is recorded at %s, after one of %s", side, e.RecordedAt, last[side])
			}
			last[side] = e.RecordedAt
		}
	}
}

// entries is I6 and I10.
func (a *auditor) entries() {
	keys := make(map[string]bool)
	for _, e := range a.Entries {
		if e.Amount <= 0 || e.Debit == e.Credit {
			a.violation("I10", e.Key, "moves %d from %s to %s", e.Amount, e.Debit, e.Credit)
		}
		if keys[string(e.Kind)+e.Key] {
			a.violation("I6", e.Key, "is there twice")
		}
		keys[string(e.Kind)+e.Key] = true
	}
}
