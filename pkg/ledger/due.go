package ledger

import (
	"fmt"
	"slices"
	"time"
)

// postAllDue does, for every loaded account, what has fallen due by itself until now. There is no other clock: whoever
// touches an account later finds it as if it had been done in time.
func (d *decider) postAllDue() {
	var due []string
	d.Accounts.All(func(name string, row *Account) {
		if row.isDue(d.now) {
			due = append(due, name)
		}
	})
	slices.Sort(due) // the table has no order, and outcomes are to be reproducible
	for _, name := range due {
		d.postDueOf(name)
	}
}

// isDue reports whether anything begins or falls due by now. DueAt alone does not tell: it leaves out what moves no money
// today but decides what counts tomorrow, such as a refill period that begins while the balance is at its cap.
func (a Account) isDue(now time.Time) bool {
	begun := func(t time.Time) bool { return !t.IsZero() && !t.After(now) }
	return begun(a.DueAt) || begun(a.nextRefill()) || a.Policy.Spending.Period.Start(now).After(a.SpentSince)
}

// postDueOf posts expiries and refills of one account in the order in which they fell due, and begins its spending period.
func (d *decider) postDueOf(name string) {
	row := d.Accounts.Get(name)
	d.beginPeriod(name, d.now)
	for row.Frozen == "" && d.postNextDue(name) {
	}
	d.setDue(name)
}

// postNextDue posts what fell due first, if anything did.
func (d *decider) postNextDue(name string) bool {
	lot, refill := d.nextExpiry(name), d.Accounts.Get(name).nextRefill()
	if !refill.IsZero() && !refill.After(d.now) && (lot == nil || refill.Before(lot.ExpiresAt)) {
		through := d.now
		if lot != nil && !lot.ExpiresAt.After(d.now) {
			through = lot.ExpiresAt.Add(-time.Microsecond)
		}
		return d.refill(name, refill, through)
	}
	if lot == nil || lot.ExpiresAt.After(d.now) {
		return false
	}
	return d.expire(*lot)
}

// nextExpiry is the lot with something free that expires first; nil if there is none.
func (s *State) nextExpiry(account string) *Lot {
	for _, lot := range s.lotsOf(account) {
		if lot.Free > 0 {
			return lot
		}
	}
	return nil
}

// nextRefill is when the first refill period that was not posted begins; zero without a refill.
func (a Account) nextRefill() time.Time {
	r := a.Policy.Refill
	if r == (Refill{}) {
		return time.Time{}
	}
	return r.start(a.RefilledAt).Add(r.period())
}

// refill posts the period that began at start, or, where there is nothing to add, passes over all periods that began up to
// through: a balance at its cap stays there until something expires or somebody touches the account.
func (d *decider) refill(name string, start, through time.Time) bool {
	row := d.Accounts.Get(name)
	r := row.Policy.Refill
	amount := min(r.Amount, r.Cap-row.Balance)
	if amount <= 0 {
		d.changeAccount(name).RefilledAt = r.start(through)
		return true
	}
	if refusal := d.move(name, movement{balance: amount}); refusal != nil {
		return false // an ancestor's sums have no room; it stays due
	}
	d.changeAccount(name).RefilledAt = start
	d.post(Entry{
		Key: fmt.Sprintf("refill:%s:%d", name, start.Unix()), Kind: EntryRefill, Debit: SystemIssuance, Credit: name,
		Amount: amount, OccurredAt: start, Reason: "refill of the period from " + stamp(start),
	})
	return true
}

// setDue records when something falls due next.
func (d *decider) setDue(name string) {
	row := d.Accounts.Get(name)
	var due time.Time
	consider := func(t time.Time) {
		if !t.IsZero() && (due.IsZero() || t.Before(due)) {
			due = t
		}
	}
	if row.Frozen == "" {
		if lot := d.nextExpiry(name); lot != nil {
			consider(lot.ExpiresAt)
		}
		if row.Balance < row.Policy.Refill.Cap {
			consider(row.nextRefill())
		}
	}
	if period := row.Policy.Spending.Period; period != "" && row.SubtreeSpent != 0 {
		consider(period.Next(row.SpentSince))
	}
	if !row.DueAt.Equal(due) {
		d.changeAccount(name).DueAt = due
	}
}
