package slow

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// touched are the accounts that a batch touches, in the order of their names.
func (l *Ledger) touched(commands []ledger.Command) []string {
	var names []string
	if !l.Partial {
		for _, a := range l.accounts {
			names = append(names, a.name)
		}
	}
	for _, command := range commands {
		if ledger.Check(command) != nil {
			continue
		}
		for _, named := range l.named(command) {
			names = append(names, l.above(named)...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// named are the accounts that a command names, by themselves, by a workload or by a pod.
func (l *Ledger) named(command ledger.Command) []string {
	switch c := command.(type) {
	case ledger.SetAccount:
		return []string{c.Account, c.Parent}
	case ledger.RemoveAccount:
		return []string{c.Account}
	case ledger.PostGrant:
		return []string{c.Account}
	case ledger.Adjust:
		return []string{c.Account}
	case ledger.Transfer:
		return []string{c.From, c.To}
	case ledger.FreezeAccount:
		return []string{c.Account}
	case ledger.UnfreezeAccount:
		return []string{c.Account}
	case ledger.PostDue:
		return []string{c.Account}
	case ledger.PlaceHold:
		return append(l.sidesOf(c.UID), c.Account)
	case ledger.RenewHold:
		return l.sidesOf(c.UID)
	case ledger.EnsureHold:
		return append(l.sidesOf(c.Hold.UID), c.Hold.Account)
	case ledger.PauseHold:
		return l.sidesOf(c.UID)
	case ledger.CloseReservation:
		return l.sidesOf(c.UID)
	case ledger.Allocate:
		return append(append(l.sidesOf(c.Reservation), l.sidesOfPod(c.PodUID)...), c.Account)
	case ledger.AllocateGang:
		var names []string
		for _, member := range c.Members {
			names = append(names, l.named(member)...)
		}
		return names
	case ledger.ConfirmBound:
		return l.sidesOfPod(c.PodUID)
	case ledger.ReleaseAllocation:
		return l.sidesOfPod(c.PodUID)
	case ledger.RecordStart:
		return l.sidesOfPod(c.PodUID)
	case ledger.RecordInterval:
		return l.sidesOfPod(c.PodUID)
	case ledger.EndAllocation:
		return l.sidesOfPod(c.PodUID)
	case ledger.Refund:
		return l.sidesOfPod(c.PodUID)
	case ledger.MarkSuspect:
		return l.sidesOfPod(c.PodUID)
	case ledger.ClearSuspect:
		return l.sidesOfPod(c.PodUID)
	}
	return nil
}

func (l *Ledger) sidesOf(workload string) []string {
	if h := l.hold(workload); h != nil {
		return []string{h.Account, h.Payer}
	}
	return nil
}

func (l *Ledger) sidesOfPod(pod string) []string {
	if a := l.attempt(pod); a != nil {
		return l.sidesOf(a.Reservation)
	}
	return nil
}

// postDue does what has fallen due on an account, one thing after the other in the order of time; what expires comes before
// a period that begins at the same moment. A frozen account waits.
func (l *Ledger) postDue(name string) {
	a := l.account(name)
	l.beginPeriod(name, l.now)
	for a.frozen == "" {
		lots := slices.DeleteFunc(l.lotsOf(name), func(one lot) bool { return l.freeOf(one) == 0 || one.expires.After(l.now) })
		refill := a.nextRefill()
		before := a.refilled
		isDue := !refill.IsZero() && !refill.After(l.now)
		switch {
		case isDue && (len(lots) == 0 || refill.Before(lots[0].expires)):
			a.refilled = refill
			if l.roomBelowCap(name) > 0 && !l.try(func() { l.refill(name, refill) }) {
				l.account(name).refilled = before
				return
			}
		case len(lots) > 0:
			if !l.try(func() { l.expire(lots[0]) }) {
				return
			}
		default:
			return
		}
		a = l.account(name)
	}
}

// nextRefill is when the next period begins: a multiple of the period since 1970.
func (a account) nextRefill() time.Time {
	period := a.policy.Refill.PeriodSeconds
	if period == 0 {
		return time.Time{}
	}
	return time.Unix((a.refilled.Unix()/period+1)*period, 0).UTC()
}

// roomBelowCap is cap − balance.
func (l *Ledger) roomBelowCap(name string) ledger.Microcredits {
	room := new(total).add(l.account(name).policy.Refill.Cap)
	room.Sub(&room.Int, &l.balance(name).Int)
	return room.amount()
}

// refill adds min(amount, cap − balance).
func (l *Ledger) refill(name string, start time.Time) {
	l.post(ledger.Entry{
		Key: "refill:" + name + ":" + strconv.FormatInt(start.Unix(), 10), Kind: ledger.EntryRefill,
		Debit: ledger.SystemIssuance, Credit: name, Amount: min(l.account(name).policy.Refill.Amount, l.roomBelowCap(name)), OccurredAt: start,
	}, nil)
}

// expire takes what is free of a lot.
func (l *Ledger) expire(one lot) {
	amount := l.freeOf(one)
	l.post(ledger.Entry{
		Key: fmt.Sprintf("expiry:%s:%d", one.key, l.expiredOf(one)), Kind: ledger.EntryExpiry,
		Debit: one.account, Credit: ledger.SystemExpired, Amount: amount, OccurredAt: one.expires,
		Draws: []ledger.Take{{Lot: one.key, Amount: amount}},
	}, nil)
}

// dueAt is when something falls due next.
func (l *Ledger) dueAt(name string) (due time.Time) {
	a := l.account(name)
	sooner := func(t time.Time) {
		if due.IsZero() || t.Before(due) {
			due = t
		}
	}
	if a.frozen == "" {
		for _, one := range l.lotsOf(name) {
			if l.freeOf(one) > 0 {
				sooner(one.expires)
			}
		}
		if r := a.policy.Refill; r.PeriodSeconds != 0 && l.balance(name).Cmp(&new(total).add(r.Cap).Int) < 0 {
			sooner(a.nextRefill())
		}
	}
	if period := a.policy.Spending.Period; period != "" && l.subtreeSpent(name).Sign() != 0 {
		sooner(periodEnd(period, a.spentSince))
	}
	return due
}

// periodStart goes back, day by day, to the first one of the period.
func periodStart(period ledger.Period, t time.Time) time.Time {
	if period == "" {
		return time.Time{}
	}
	day := time.Date(t.UTC().Year(), t.UTC().Month(), t.UTC().Day(), 0, 0, 0, 0, time.UTC)
	for !beginsPeriod(period, day) {
		day = day.AddDate(0, 0, -1)
	}
	return day
}

// periodEnd goes forward likewise.
func periodEnd(period ledger.Period, start time.Time) time.Time {
	day := start.AddDate(0, 0, 1)
	for !beginsPeriod(period, day) {
		day = day.AddDate(0, 0, 1)
	}
	return day
}

func beginsPeriod(period ledger.Period, day time.Time) bool {
	switch period {
	case ledger.PeriodWeek:
		return day.Weekday() == time.Monday
	case ledger.PeriodMonth:
		return day.Day() == 1
	case ledger.PeriodQuarter:
		return day.Day() == 1 && (day.Month() == 1 || day.Month() == 4 || day.Month() == 7 || day.Month() == 10)
	case ledger.PeriodYear:
		return day.YearDay() == 1
	}
	return true
}
