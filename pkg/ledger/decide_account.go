package ledger

import "slices"

func (d *decider) setAccount(c SetAccount) Verdict {
	if c.Parent != "" {
		ancestors := d.path(c.Parent)
		if ancestors == nil {
			return Verdict{Refusal: refuse(UnknownAccount, "parent account %s of %s does not exist; create it first", c.Parent, c.Account)}
		}
		if slices.Contains(ancestors, c.Account) {
			return Verdict{Refusal: refuse(Invalid, "account %s cannot be below %s, which is below it", c.Account, c.Parent)}
		}
	}
	row := d.Accounts.Get(c.Account)
	if row == nil {
		d.Accounts.insert(c.Account, Account{Name: c.Account, Parent: c.Parent, PolicyVersion: d.LastPolicies[c.Account], Revision: d.Revision})
		d.LoadSpending(c.Account, nil)
		d.noteUse(c.Parent, func(use *AccountUse) { use.Children++ })
		d.setPolicy(c.Account, c.Policy)
		return Verdict{}
	}
	before := row.Parent
	if before != c.Parent {
		if refusal := d.reparent(*row, c.Parent); refusal != nil {
			return Verdict{Refusal: refusal}
		}
	}
	if row.Policy != c.Policy {
		changed := *row
		changed.Policy = c.Policy
		overspent := subtreeSums{overspent: changed.Overspent() - row.Overspent()}
		if refusal := d.checkSubtrees(d.path(c.Account), overspent); refusal != nil {
			if row.Parent != before { // all of it or nothing
				if again := d.reparent(*row, before); again != nil {
					panic("ledger: moving account " + c.Account + " back below " + before + ": " + again.Message)
				}
			}
			return Verdict{Refusal: refusal}
		}
		d.addToSubtrees(d.path(c.Account), overspent)
		d.setPolicy(c.Account, c.Policy)
	}
	return Verdict{}
}

// setPolicy gives an account the next version of its policy, and begins what the policy counts by time.
func (d *decider) setPolicy(account string, policy Policy) {
	row := d.changeSettings(account)
	before := row.Policy
	row.Policy = policy
	row.PolicyVersion++
	d.recentPolicies = append(d.recentPolicies, PolicyVersion{Account: account, Version: row.PolicyVersion, Policy: policy})
	if policy.Spending.Period != before.Spending.Period {
		d.countSpending(account)
	}
	if r := policy.Refill; r != before.Refill && r != (Refill{}) {
		row.RefilledAt = later(row.RefilledAt, r.start(d.now).Add(-r.period()))
	}
	d.postDueOf(account)
}

// reparent moves an account with everything below it. What it already owes or holds is not checked against its new
// ancestors: the next hold is. What its subtree spent in their current periods counts for them from now on.
func (d *decider) reparent(account Account, parent string) *Refusal {
	oldPath, newPath := apart(d.path(account.Parent), d.path(parent)) // nothing changes for whoever is above both
	sums := sumsOf(account)
	if refusal := d.checkSubtrees(newPath, sums); refusal != nil {
		return refusal
	}
	if refusal := d.checkSubtrees(oldPath, sums.negated()); refusal != nil {
		return refusal
	}
	d.addToSubtrees(newPath, sums)
	d.addToSubtrees(oldPath, sums.negated())
	spent := d.subtreeSpending[account.Name]
	for sign, path := range map[Microcredits][]string{1: newPath, -1: oldPath} {
		for _, name := range path {
			d.moveSpending(name, spent, sign)
		}
	}
	d.changeSettings(account.Name).Parent = parent
	d.noteUse(account.Parent, func(use *AccountUse) { use.Children-- })
	d.noteUse(parent, func(use *AccountUse) { use.Children++ })
	return nil
}

// apart are two paths to the root without what they share.
func apart(one, other []string) (onlyOne, onlyOther []string) {
	for len(one) > 0 && len(other) > 0 && one[len(one)-1] == other[len(other)-1] {
		one, other = one[:len(one)-1], other[:len(other)-1]
	}
	return one, other
}

func (d *decider) removeAccount(c RemoveAccount) Verdict {
	row := d.Accounts.Get(c.Account)
	if row == nil {
		return Verdict{} // already gone
	}
	use := d.Uses[c.Account]
	for _, reason := range []struct {
		inUse bool
		what  string
	}{
		{use.Children > 0, "child accounts; move or remove them first"},
		{use.Reservations, "reservations; its history has to stay readable"},
		{use.Entries, "entries; its history has to stay readable"},
	} {
		if reason.inUse {
			return Verdict{Refusal: refuse(AccountInUse, "account %s has %s", c.Account, reason.what)}
		}
	}
	d.noteUse(row.Parent, func(use *AccountUse) { use.Children-- })
	if d.LastPolicies == nil {
		d.LastPolicies = make(map[string]int64)
	}
	d.LastPolicies[c.Account] = row.PolicyVersion
	d.Accounts.remove(c.Account)
	return Verdict{}
}

// noteUse keeps the uses of accounts that a later command of the batch may remove.
func (d *decider) noteUse(account string, note func(*AccountUse)) {
	if account == "" {
		return
	}
	if d.Uses == nil {
		d.Uses = make(map[string]AccountUse)
	}
	use := d.Uses[account]
	note(&use)
	d.Uses[account] = use
}

func (d *decider) setRate(c SetRate) Verdict {
	newest := d.Rates.Get(c.Class)
	if newest != nil && newest.Rate == c.Rate {
		return Verdict{RateVersion: newest.Version}
	}
	next := RateVersion{Class: c.Class, Version: 1, Rate: c.Rate}
	if newest == nil {
		d.Rates.insert(c.Class, next)
	} else {
		next.Version = newest.Version + 1
		*d.Rates.change(c.Class) = next
	}
	d.recentRateVersions = append(d.recentRateVersions, next)
	return Verdict{RateVersion: next.Version}
}

func (d *decider) postGrant(c PostGrant) Verdict {
	if d.Accounts.Get(c.Account) == nil {
		return Verdict{Refusal: unknownAccount(c.Account)}
	}
	if refusal := d.checkNotFrozen(c.Account); refusal != nil {
		return Verdict{Refusal: refusal}
	}
	expiresAt := Instant(c.ExpiresAt)
	if !expiresAt.IsZero() && !expiresAt.After(d.now) {
		return Verdict{Refusal: refuse(AlreadyExpired, "the grant expires %s, and it is %s", stamp(expiresAt), stamp(d.now))}
	}
	if refusal := d.move(c.Account, movement{balance: c.Amount}); refusal != nil {
		return Verdict{Refusal: refusal}
	}
	entry := Entry{
		Key: c.Key, Kind: EntryGrant, Debit: SystemIssuance, Credit: c.Account, Amount: c.Amount,
		OccurredAt: d.now, Reason: c.Reason, Actor: c.Actor,
	}
	if !expiresAt.IsZero() {
		entry.Draws = d.addLot(Lot{Key: "grant:" + c.Key, Account: c.Account, Amount: c.Amount, ExpiresAt: expiresAt})
	}
	d.post(entry)
	return Verdict{}
}

// post appends an entry. Whoever posts has moved the accounts' figures by the same amount.
func (d *decider) post(e Entry) {
	e.RecordedAt = d.recordedAt(e.Spender, e.Debit, e.Credit, e.Spender)
	for _, side := range []string{e.Debit, e.Credit, e.Spender} {
		if d.Accounts.Get(side) != nil {
			d.changeAccount(side).LastEntryAt = e.RecordedAt
			d.noteUse(side, func(use *AccountUse) { use.Entries = true })
		}
	}
	if e.Spender != "" {
		d.noteSpending(e)
	}
	d.recentEntries = append(d.recentEntries, e)
}

func unknownAccount(name string) *Refusal {
	return refuse(UnknownAccount, "account %s does not exist; create a CreditAccount of that name", name)
}
