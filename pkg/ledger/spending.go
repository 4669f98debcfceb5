package ledger

import "time"

// SubtreeSpending is what an account and everything below it spent, net of refunds, by UTC day.
type SubtreeSpending map[time.Time]Microcredits

// since is what was spent on the day that begins at start, and later.
func (s SubtreeSpending) since(start time.Time) (sum Microcredits) {
	for day, amount := range s {
		if !day.Before(start) {
			sum += amount
		}
	}
	return sum
}

// latest is the last day on which something was spent or given back; zero if there is none.
func (s SubtreeSpending) latest() (day time.Time) {
	for each := range s {
		day = later(day, each)
	}
	return day
}

// LoadSpending puts what an account's subtree spent into the state: at least since the year of now began, and the week.
func (s *State) LoadSpending(account string, spending SubtreeSpending) {
	if s.subtreeSpending == nil {
		s.subtreeSpending = make(map[string]SubtreeSpending)
	}
	if spending == nil {
		spending = make(SubtreeSpending)
	}
	s.subtreeSpending[account] = spending
}

// The clocks of several writers differ, so an entry may be recorded in a later period than the next writer's clock shows.
// What a period counts stays exact all the same, because of one rule: nothing below an account is recorded in a later
// period than the one that the account counts. A new period therefore begins at 0, and what is recorded is in it.

// recordedAt is when an entry is recorded that moves money between accounts for a spender ("" for none): not before the last
// one of either, and not before the periods that the spender counts in.
func (d *decider) recordedAt(spender string, sides ...string) time.Time {
	at := d.now
	for _, side := range sides {
		if row := d.Accounts.Get(side); row != nil {
			at = later(at, row.LastEntryAt)
		}
	}
	if spender != "" {
		for _, name := range d.path(spender) {
			at = later(at, d.Accounts.Get(name).SpentSince)
		}
	}
	return at
}

// beginSpending makes the periods of the spender, and of everyone above it, those in which what it is charged now will be
// recorded.
func (d *decider) beginSpending(payer, spender string) {
	at := d.recordedAt(spender, payer, spender)
	for _, name := range d.path(spender) {
		d.beginPeriod(name, at)
	}
}

// beginPeriod begins the spending period of an account that contains at, if it is later than the one it counts.
func (d *decider) beginPeriod(name string, at time.Time) {
	row := d.Accounts.Get(name)
	if start := row.Policy.Spending.Period.Start(at); start.After(row.SpentSince) {
		changed := d.changeAccount(name)
		changed.SpentSince, changed.SubtreeSpent = start, 0
	}
}

// countSpending begins to count what a new policy limits, with what the subtree has spent in the period so far.
func (d *decider) countSpending(name string) {
	row, spent := d.changeAccount(name), d.subtreeSpending[name]
	row.SpentSince, row.SubtreeSpent = time.Time{}, 0
	if period := row.Policy.Spending.Period; period != "" {
		row.SpentSince = period.Start(later(d.now, spent.latest()))
		row.SubtreeSpent = spent.since(row.SpentSince)
	}
}

// noteSpending adds an entry of a spender to its day, and to what is loaded of the subtrees that it is in.
func (d *decider) noteSpending(e Entry) {
	amount := e.Amount
	if e.Kind == EntryRefund {
		amount = -amount
	}
	day := PeriodDay.Start(e.RecordedAt)
	d.recentSpending = append(d.recentSpending, DailySpending{Account: e.Spender, Day: day, Amount: amount})
	for _, name := range d.path(e.Spender) {
		if loaded, ok := d.subtreeSpending[name]; ok {
			loaded[day] += amount
		}
	}
}

// moveSpending adds a moved subtree's spending to an ancestor's, or takes it away.
func (d *decider) moveSpending(ancestor string, spent SubtreeSpending, sign Microcredits) {
	d.beginPeriod(ancestor, later(d.now, spent.latest()))
	if row := d.Accounts.Get(ancestor); row.Policy.Spending.Period != "" {
		if amount := spent.since(row.SpentSince); amount != 0 {
			d.changeAccount(ancestor).SubtreeSpent += sign * amount
		}
	}
	if loaded, ok := d.subtreeSpending[ancestor]; ok {
		for day, amount := range spent {
			loaded[day] += sign * amount
		}
	}
}
