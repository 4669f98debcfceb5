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
		d.Accounts.insert(c.Account, Account{Name: c.Account, Parent: c.Parent, Policy: c.Policy, Revision: d.Revision})
		d.noteUse(c.Parent, func(use *AccountUse) { use.Children++ })
		return Verdict{Account: copyOf(d.Accounts.Get(c.Account))}
	}
	if row.Parent != c.Parent {
		if refusal := d.reparent(*row, c.Parent); refusal != nil {
			return Verdict{Refusal: refusal}
		}
	}
	if row.Policy != c.Policy {
		changed := *row
		changed.Policy = c.Policy
		if refusal := d.moveSubtrees(d.path(c.Account), 0, 0, changed.Overspent()-row.Overspent()); refusal != nil {
			return Verdict{Refusal: refusal}
		}
		d.changeAccount(c.Account).Policy = c.Policy
	}
	return Verdict{Account: copyOf(d.Accounts.Get(c.Account))}
}

// reparent moves an account with everything below it. What it already owes or holds is not checked against its new
// ancestors: the next hold is.
func (d *decider) reparent(account Account, parent string) *Refusal {
	oldPath, newPath := d.path(account.Parent), d.path(parent)
	if refusal := d.moveSubtrees(newPath, account.SubtreeBalance, account.SubtreeReserved, account.SubtreeOverspent); refusal != nil {
		return refusal
	}
	if refusal := d.moveSubtrees(oldPath, -account.SubtreeBalance, -account.SubtreeReserved, -account.SubtreeOverspent); refusal != nil {
		panic("ledger: taking account " + account.Name + " out of " + account.Parent + ": " + refusal.Message)
	}
	d.changeAccount(account.Name).Parent = parent
	d.noteUse(account.Parent, func(use *AccountUse) { use.Children-- })
	d.noteUse(parent, func(use *AccountUse) { use.Children++ })
	return nil
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
			return Verdict{Refusal: refuse(AccountInUse, "account %s has %s", c.Account, reason.what), Account: copyOf(row)}
		}
	}
	d.noteUse(row.Parent, func(use *AccountUse) { use.Children-- })
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
	if refusal := d.move(c.Account, movement{balance: c.Amount}); refusal != nil {
		return Verdict{Refusal: refusal}
	}
	d.post(Entry{
		Key: c.Key, Kind: EntryGrant, Debit: SystemIssuance, Credit: c.Account, Amount: c.Amount,
		OccurredAt: d.now, Reason: c.Reason, Actor: c.Actor,
	})
	return Verdict{Account: copyOf(d.Accounts.Get(c.Account))}
}

// post appends an entry. Whoever posts has moved the account's figures by the same amount.
func (d *decider) post(e Entry) {
	e.RecordedAt = d.now
	d.recentEntries = append(d.recentEntries, e)
	for _, side := range []string{e.Debit, e.Credit} {
		if d.Accounts.Get(side) != nil {
			d.noteUse(side, func(use *AccountUse) { use.Entries = true })
		}
	}
}

func unknownAccount(name string) *Refusal {
	return refuse(UnknownAccount, "account %s does not exist; create a CreditAccount of that name", name)
}
