package slow

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpubank/gpubank/pkg/ledger"
)

func (l *Ledger) setAccount(c ledger.SetAccount) ledger.Verdict {
	if c.Parent != "" && l.account(c.Parent) == nil {
		return refused(ledger.UnknownAccount)
	}
	if slices.Contains(l.above(c.Parent), c.Account) {
		return refused(ledger.Invalid)
	}
	a := l.account(c.Account)
	if a == nil {
		l.accounts = append(l.accounts, account{name: c.Account, parent: c.Parent})
		l.setPolicy(c.Account, c.Policy)
		return ledger.Verdict{}
	}
	if !l.try(func() {
		a := l.account(c.Account)
		if a.parent != c.Parent {
			l.move(c.Account, c.Parent)
		}
		if a.policy != c.Policy {
			l.setPolicy(c.Account, c.Policy)
		}
	}) {
		return refused(ledger.OutOfRange)
	}
	return ledger.Verdict{}
}

// move takes an account with everything below it elsewhere. Whoever is above it then or was so before has begun the periods in
// which it spent.
func (l *Ledger) move(name, parent string) {
	for _, one := range append(l.above(l.account(name).parent), l.above(parent)...) {
		l.beginPeriod(one, latest(l.now, l.lastSpent(name)))
	}
	l.account(name).parent = parent
}

// lastSpent is when an account or one below it was charged or given back last.
func (l *Ledger) lastSpent(name string) (last time.Time) {
	for _, e := range l.entries {
		if slices.Contains(l.below(name), e.Spender) {
			last = latest(last, e.RecordedAt)
		}
	}
	return last
}

// beginPeriod begins the spending period that contains t, if that is later than the one that runs.
func (l *Ledger) beginPeriod(name string, t time.Time) {
	a := l.account(name)
	a.spentSince = latest(a.spentSince, periodStart(a.policy.Spending.Period, t))
}

// setPolicy begins a spending period when the kind of period changes, and a refill with the period that runs.
func (l *Ledger) setPolicy(name string, policy ledger.Policy) {
	a := l.account(name)
	before := a.policy
	a.policy = policy
	l.policies = append(l.policies, name)
	a.version = 0
	for _, one := range l.policies {
		if one == name {
			a.version++
		}
	}
	if policy.Spending.Period != before.Spending.Period {
		a.spentSince = periodStart(policy.Spending.Period, latest(l.now, l.lastSpent(name)))
	}
	if r := policy.Refill; r != before.Refill && r.PeriodSeconds != 0 {
		running := l.now.Unix() / r.PeriodSeconds * r.PeriodSeconds
		a.refilled = latest(a.refilled, unix(running-r.PeriodSeconds))
	}
	l.postDue(name)
}

func (l *Ledger) removeAccount(c ledger.RemoveAccount) ledger.Verdict {
	if len(l.below(c.Account)) > 1 {
		return refused(ledger.AccountInUse)
	}
	for _, h := range l.holds {
		if h.Account == c.Account || h.Payer == c.Account {
			return refused(ledger.AccountInUse)
		}
	}
	for _, e := range l.entries {
		if e.Debit == c.Account || e.Credit == c.Account || e.Spender == c.Account {
			return refused(ledger.AccountInUse)
		}
	}
	l.accounts = slices.DeleteFunc(l.accounts, func(a account) bool { return a.name == c.Account })
	return ledger.Verdict{}
}

func (l *Ledger) setRate(c ledger.SetRate) ledger.Verdict {
	newest := l.rate(c.Class)
	if newest.Rate == c.Rate {
		return ledger.Verdict{RateVersion: newest.Version}
	}
	l.rates = append(l.rates, ledger.RateVersion{Class: c.Class, Version: newest.Version + 1, Rate: c.Rate})
	return ledger.Verdict{RateVersion: newest.Version + 1}
}

// rate is the newest version of a class, version 0 if there is none.
func (l *Ledger) rate(class string) (newest ledger.RateVersion) {
	for _, r := range l.rates {
		if r.Class == class && r.Version > newest.Version {
			newest = r
		}
	}
	return newest
}

func (l *Ledger) isFrozen(name string) bool { return l.account(name).frozen != "" }

func (l *Ledger) postGrant(c ledger.PostGrant) ledger.Verdict {
	expires := microsecond(c.ExpiresAt)
	switch {
	case l.account(c.Account) == nil:
		return refused(ledger.UnknownAccount)
	case l.isFrozen(c.Account):
		return frozen(c.Account)
	case !expires.IsZero() && !expires.After(l.now):
		return refused(ledger.AlreadyExpired)
	}
	grant := ledger.Entry{
		Key: c.Key, Kind: ledger.EntryGrant, Debit: ledger.SystemIssuance, Credit: c.Account, Amount: c.Amount,
		OccurredAt: l.now, Reason: c.Reason, Actor: c.Actor,
	}
	if !l.try(func() {
		if !expires.IsZero() {
			one := lot{key: "grant:" + c.Key, account: c.Account, amount: c.Amount, expires: expires}
			if filled := min(c.Amount, l.missing(c.Account)); filled > 0 {
				grant.Draws = []ledger.Take{{Lot: one.key, Amount: filled}}
			}
			l.lots = append(l.lots, one)
		}
		l.post(grant, nil)
	}) {
		return refused(ledger.OutOfRange)
	}
	return ledger.Verdict{}
}

// missing is how far below zero the permanent credits are.
func (l *Ledger) missing(name string) ledger.Microcredits {
	permanent := l.permanent(name)
	if permanent.Sign() >= 0 {
		return 0
	}
	return -permanent.amount()
}

func (l *Ledger) adjust(c ledger.Adjust) ledger.Verdict {
	if l.account(c.Account) == nil {
		return refused(ledger.UnknownAccount)
	}
	if c.Corrects != 0 {
		if c.Corrects > int64(l.knownEntries) {
			return refused(ledger.UnknownEntry)
		}
		if wrong := l.entries[c.Corrects-1]; wrong.Debit != c.Account && wrong.Credit != c.Account {
			return refused(ledger.UnknownEntry)
		}
	}
	closes := -1
	if c.Discrepancy != "" {
		closes = slices.IndexFunc(l.discrepancies[:l.knownDiscrepancies], func(d ledger.Discrepancy) bool { return d.Key == c.Discrepancy })
		if closes < 0 {
			return refused(ledger.UnknownDiscrepancy)
		}
		if !l.discrepancies[closes].ResolvedAt.IsZero() {
			return refused(ledger.AlreadyResolved)
		}
	}
	e := ledger.Entry{
		Key: c.Key, Kind: ledger.EntryAdjustment, Debit: ledger.SystemAdjustments, Credit: c.Account, Amount: c.Amount,
		Corrects: c.Corrects, OccurredAt: l.now, Reason: c.Reason, Actor: c.Actor,
	}
	if c.Amount < 0 {
		e.Debit, e.Credit, e.Amount = c.Account, ledger.SystemAdjustments, -c.Amount
	}
	if c.Amount != 0 && !l.try(func() { l.post(e, nil) }) {
		return refused(ledger.OutOfRange)
	}
	if closes >= 0 {
		l.discrepancies[closes].ResolvedAt = l.now
	}
	return ledger.Verdict{}
}

func (l *Ledger) transfer(c ledger.Transfer) ledger.Verdict {
	for _, name := range []string{c.From, c.To} {
		if l.account(name) == nil {
			return refused(ledger.UnknownAccount)
		}
		if l.isFrozen(name) {
			return frozen(name)
		}
	}
	amount := new(total).add(c.Amount)
	if available := l.available(c.From); amount.Cmp(&available.Int) > 0 {
		return *limited(ledger.InsufficientCredits, c.From, c.Amount, available.amount())
	}
	for _, name := range l.above(c.From) {
		if slices.Contains(l.above(c.To), name) {
			continue
		}
		if available := l.subtreeAvailable(name); amount.Cmp(&available.Int) > 0 {
			return *limited(ledger.InsufficientCredits, name, c.Amount, available.amount())
		}
	}
	if !l.try(func() { l.carryOver(c) }) {
		return refused(ledger.OutOfRange)
	}
	return ledger.Verdict{}
}

// carryOver moves the giver's lots first; what arrives fills what the receiver has below zero, and the rest keeps its expiry:
// permanent credits fill first, then the lots, earliest expiring first.
func (l *Ledger) carryOver(c ledger.Transfer) {
	draws := l.draw(c.From, c.Amount)
	missing := l.missing(c.To)
	permanent := c.Amount
	for _, draw := range draws {
		permanent -= draw.Amount
	}
	missing -= min(missing, permanent)
	var fills []ledger.Take
	for i, draw := range draws {
		filled := min(missing, draw.Amount)
		missing -= filled
		one := lot{key: fmt.Sprintf("transfer:%s#%d", c.Key, i), account: c.To, amount: draw.Amount, expires: l.lot(draw.Lot).expires}
		l.lots = append(l.lots, one)
		if filled > 0 {
			fills = append(fills, ledger.Take{Lot: one.key, Amount: filled})
		}
	}
	l.post(ledger.Entry{
		Key: c.Key, Kind: ledger.EntryTransfer, Debit: c.From, Credit: c.To, Amount: c.Amount, Draws: slices.Concat(draws, fills),
		OccurredAt: l.now, Reason: c.Reason, Actor: c.Actor,
	}, nil)
}

func (l *Ledger) lot(key string) lot {
	i := slices.IndexFunc(l.lots, func(one lot) bool { return one.key == key })
	return l.lots[i]
}

// draw is what of an amount comes out of an account's free lots, earliest expiring first.
func (l *Ledger) draw(name string, amount ledger.Microcredits) (draws []ledger.Take) {
	for _, one := range l.lotsOf(name) {
		if part := min(amount, l.freeOf(one)); part > 0 {
			draws = append(draws, ledger.Take{Lot: one.key, Amount: part})
			amount -= part
		}
	}
	return draws
}

func frozen(name string) ledger.Verdict {
	return ledger.Verdict{Refusal: &ledger.Refusal{Code: ledger.AccountFrozen, Account: name}}
}

func (l *Ledger) freeze(name, reason string) ledger.Verdict {
	a := l.account(name)
	if a == nil {
		return refused(ledger.UnknownAccount)
	}
	if a.frozen == "" {
		a.frozen = reason
	}
	return ledger.Verdict{}
}

func (l *Ledger) unfreeze(name string) ledger.Verdict {
	a := l.account(name)
	if a == nil {
		return refused(ledger.UnknownAccount)
	}
	if a.frozen != "" {
		a.frozen = ""
		l.postDue(name)
	}
	return ledger.Verdict{}
}

// post appends an entry. Within one account the time of recording never goes back, nor before the spending period that it
// counts in.
func (l *Ledger) post(e ledger.Entry, fromHold []ledger.Take) {
	e.RecordedAt = l.now
	for _, earlier := range l.entries {
		for _, side := range []string{e.Debit, e.Credit, e.Spender} {
			if l.account(side) != nil && (earlier.Debit == side || earlier.Credit == side || earlier.Spender == side) {
				e.RecordedAt = latest(e.RecordedAt, earlier.RecordedAt)
			}
		}
	}
	for _, name := range l.above(e.Spender) {
		e.RecordedAt = latest(e.RecordedAt, l.account(name).spentSince)
	}
	for _, name := range l.above(e.Spender) {
		l.beginPeriod(name, e.RecordedAt)
	}
	l.entries = append(l.entries, entry{Entry: e, fromHold: fromHold})
}
