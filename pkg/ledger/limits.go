package ledger

import "fmt"

// checkHold is every limit that a new hold, or more of one, has to stay within: what the payer and everyone above it has
// (I1), and what the spender and everyone above it may spend. Neither may be frozen.
func (s *State) checkHold(payer, spender string, amount Microcredits) *Refusal {
	for _, name := range []string{spender, payer} {
		if refusal := s.checkNotFrozen(name); refusal != nil {
			return refusal
		}
	}
	if refusal := s.checkFunds(payer, amount); refusal != nil {
		return refusal
	}
	return s.checkSpending(spender, amount)
}

func (s *State) checkNotFrozen(account string) *Refusal {
	row := s.Accounts.Get(account)
	if row.Frozen == "" {
		return nil
	}
	return &Refusal{Code: AccountFrozen, Account: account,
		Message: fmt.Sprintf("account %s is frozen: %s; whoever keeps the ledger has to look at it and unfreeze it", account, row.Frozen)}
}

// checkFunds is I1: may amount be set aside on account? Its own available credits must not fall below its overdraft
// limit, nor those of its whole subtree, nor those of any ancestor's subtree. What other accounts have overspent is
// left out of the subtree sums: they are stopped by their own limit, not by their siblings' (L24).
func (s *State) checkFunds(account string, amount Microcredits) *Refusal {
	own := s.Accounts.Get(account)
	if available := own.Available() + own.Policy.OverdraftLimit; amount > available {
		return insufficient(account, account, amount, available)
	}
	for _, name := range s.path(account) {
		if available := s.Accounts.Get(name).subtreeAvailable(); amount > available {
			return insufficient(account, name, amount, available)
		}
	}
	return nil
}

// subtreeAvailable is what the account and everything below it may still reserve together.
func (a Account) subtreeAvailable() Microcredits {
	return a.SubtreeBalance - a.SubtreeReserved + a.SubtreeOverspent + a.Policy.OverdraftLimit
}

func insufficient(payer, limitedBy string, needed, available Microcredits) *Refusal {
	where := "on account " + limitedBy
	if limitedBy != payer {
		where += ", whose limit also bounds account " + payer
	}
	return &Refusal{
		Code: InsufficientCredits, Account: limitedBy, Needed: needed, Available: available,
		Message: fmt.Sprintf("needs %s credits, %s available %s; ask for a shorter max-runtime or a grant",
			DisplayCredits(needed), DisplayCredits(available), where),
	}
}

// checkSpending is the limit per period of the spender and of everyone above it.
func (s *State) checkSpending(spender string, amount Microcredits) *Refusal {
	for _, name := range s.path(spender) {
		row := s.Accounts.Get(name)
		limit := row.Policy.Spending
		if limit.Period == "" {
			continue
		}
		if left := limit.Amount - row.SubtreeHeld - row.SubtreeSpent; amount > left {
			return &Refusal{
				Code: SpendingLimited, Account: name, Needed: amount, Available: left,
				Message: fmt.Sprintf("needs %s credits, %s left of the %s that account %s may spend in a %s; the next one begins %s",
					DisplayCredits(amount), DisplayCredits(left), DisplayCredits(limit.Amount), name, limit.Period.noun(),
					stamp(limit.Period.Next(row.SpentSince))),
			}
		}
	}
	return nil
}

func (p Period) noun() string {
	switch p {
	case PeriodDay:
		return "day"
	case PeriodWeek:
		return "week"
	case PeriodMonth:
		return "month"
	case PeriodQuarter:
		return "quarter"
	}
	return "year"
}

// checkRunning is the limit of running jobs of the spender and of everyone above it, for so many more.
func (s *State) checkRunning(spender string, more int64) *Refusal {
	for _, name := range s.path(spender) {
		row := s.Accounts.Get(name)
		if most := row.Policy.RunningJobs; most > 0 && more > 0 && row.SubtreeRunning+more > most {
			return &Refusal{Code: RunningLimited, Account: name,
				Message: fmt.Sprintf("account %s runs %d of at most %d jobs at once; it waits until one of them has ended", name, row.SubtreeRunning, most)}
		}
	}
	return nil
}
