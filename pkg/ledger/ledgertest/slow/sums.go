package slow

import (
	"cmp"
	"math/big"
	"slices"
	"time"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// total is a sum without limits.
type total struct{ big.Int }

func (t *total) add(amount ledger.Microcredits) *total {
	t.Int.Add(&t.Int, big.NewInt(int64(amount)))
	return t
}

func (t *total) less(amount ledger.Microcredits) *total { return t.add(-amount) }

func (t *total) fits() bool { return t.CmpAbs(big.NewInt(int64(ledger.MaxAmount))) <= 0 }

func (t *total) amount() ledger.Microcredits {
	if !t.IsInt64() {
		panic("slow: a sum does not fit an amount: " + t.String())
	}
	return ledger.Microcredits(t.Int64())
}

func (l *Ledger) account(name string) *account {
	for i := range l.accounts {
		if l.accounts[i].name == name {
			return &l.accounts[i]
		}
	}
	return nil
}

// above is an account and everyone above it, nearest first.
func (l *Ledger) above(name string) []string {
	var names []string
	for a := l.account(name); a != nil; a = l.account(a.parent) {
		names = append(names, a.name)
	}
	return names
}

// below is an account and everyone below it.
func (l *Ledger) below(name string) []string {
	var names []string
	for _, a := range l.accounts {
		if slices.Contains(l.above(a.name), name) {
			names = append(names, a.name)
		}
	}
	return names
}

func (l *Ledger) balance(name string) *total {
	sum := new(total)
	for _, e := range l.entries {
		if e.Credit == name {
			sum.add(e.Amount)
		}
		if e.Debit == name {
			sum.less(e.Amount)
		}
	}
	return sum
}

func (l *Ledger) reserved(payer string) *total {
	sum := new(total)
	for _, h := range l.holds {
		if h.Payer == payer {
			sum.add(l.remaining(h))
		}
	}
	return sum
}

func (l *Ledger) held(spender string) *total {
	sum := new(total)
	for _, h := range l.holds {
		if h.Account == spender {
			sum.add(l.remaining(h))
		}
	}
	return sum
}

func (l *Ledger) running(spender string) (jobs int64) {
	for _, h := range l.holds {
		if h.Account == spender && h.State == ledger.Active {
			jobs++
		}
	}
	return jobs
}

// spent is a spender's charges less refunds that were recorded at or after a moment.
func (l *Ledger) spent(spender string, since time.Time) *total {
	sum := new(total)
	for _, e := range l.entries {
		switch {
		case e.Spender != spender || e.RecordedAt.Before(since):
		case e.Kind == ledger.EntryCharge:
			sum.add(e.Amount)
		case e.Kind == ledger.EntryRefund:
			sum.less(e.Amount)
		}
	}
	return sum
}

func (l *Ledger) available(name string) *total {
	sum := l.balance(name)
	sum.Sub(&sum.Int, &l.reserved(name).Int)
	return sum
}

// overspent is how far an account's available credits are below its overdraft limit.
func (l *Ledger) overspent(name string) *total {
	short := new(total).less(l.account(name).policy.OverdraftLimit)
	short.Sub(&short.Int, &l.available(name).Int)
	if short.Sign() < 0 {
		return new(total)
	}
	return short
}

// sumBelow adds a figure up over an account and everyone below it.
func (l *Ledger) sumBelow(name string, figure func(string) *total) *total {
	sum := new(total)
	for _, one := range l.below(name) {
		sum.Add(&sum.Int, &figure(one).Int)
	}
	return sum
}

func (l *Ledger) subtreeSpent(name string) *total {
	a := l.account(name)
	if a.policy.Spending.Period == "" {
		return new(total)
	}
	return l.sumBelow(name, func(one string) *total { return l.spent(one, a.spentSince) })
}

func (l *Ledger) subtreeRunning(name string) (jobs int64) {
	for _, one := range l.below(name) {
		jobs += l.running(one)
	}
	return jobs
}

// allCharged is a spender's charges less refunds since it began.
func (l *Ledger) allCharged(spender string) *total { return l.spent(spender, time.Time{}) }

func (l *Ledger) inRange(name string) bool {
	for _, sum := range []*total{
		l.balance(name), l.reserved(name), l.held(name), l.allCharged(name), l.subtreeSpent(name),
		l.sumBelow(name, l.balance), l.sumBelow(name, l.reserved), l.sumBelow(name, l.held), l.sumBelow(name, l.overspent),
	} {
		if !sum.fits() {
			return false
		}
	}
	return true
}

func (l *Ledger) chargedOn(h hold) *total {
	sum := new(total)
	for _, e := range l.entries {
		if e.Reservation == h.UID && e.Kind == ledger.EntryCharge {
			sum.add(e.Amount)
		}
	}
	return sum
}

// remaining is what a hold still sets aside.
func (l *Ledger) remaining(h hold) ledger.Microcredits {
	left := new(total).add(h.Amount)
	left.Sub(&left.Int, &l.chargedOn(h).Int)
	if left.Sign() < 0 || h.State != ledger.Held && h.State != ledger.Active {
		return 0
	}
	return left.amount()
}

// lotsOf are an account's lots, earliest expiring first.
func (l *Ledger) lotsOf(name string) []lot {
	var lots []lot
	for _, one := range l.lots {
		if one.account == name {
			lots = append(lots, one)
		}
	}
	slices.SortFunc(lots, func(a, b lot) int { return cmp.Or(a.expires.Compare(b.expires), cmp.Compare(a.key, b.key)) })
	return lots
}

// heldOf is what of a lot open holds have, or one of them alone.
func (l *Ledger) heldOf(key, onlyUID string) ledger.Microcredits {
	sum := new(total)
	for _, h := range l.holds {
		if h.State != ledger.Held && h.State != ledger.Active || onlyUID != "" && h.UID != onlyUID {
			continue
		}
		sum.add(takenFrom(key, h.taken))
		for _, e := range l.entries {
			if e.Reservation == h.UID {
				sum.less(takenFrom(key, e.fromHold))
			}
		}
	}
	return sum.amount()
}

// freeOf is what of a lot was neither used nor is held.
func (l *Ledger) freeOf(one lot) ledger.Microcredits {
	sum := new(total).add(one.amount).less(l.heldOf(one.key, ""))
	for _, e := range l.entries {
		sum.less(takenFrom(one.key, e.Draws))
	}
	return sum.amount()
}

func (l *Ledger) expiredOf(one lot) ledger.Microcredits {
	sum := new(total)
	for _, e := range l.entries {
		if e.Kind == ledger.EntryExpiry {
			sum.add(takenFrom(one.key, e.Draws))
		}
	}
	return sum.amount()
}

// permanent is what of a balance belongs to no lot.
func (l *Ledger) permanent(name string) *total {
	sum := l.balance(name)
	for _, one := range l.lotsOf(name) {
		sum.less(l.freeOf(one)).less(l.heldOf(one.key, ""))
	}
	return sum
}

func takenFrom(key string, takes []ledger.Take) (sum ledger.Microcredits) {
	for _, take := range takes {
		if take.Lot == key {
			sum += take.Amount
		}
	}
	return sum
}
