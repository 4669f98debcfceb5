package ledger

import "fmt"

// movement is a change of one account's own figures. It changes the subtree sums of the account and every ancestor
// by the same amounts, in the same transaction (I2, L27).
type movement struct {
	balance, reserved, charged Microcredits
}

// move applies a movement to an account. It refuses, changing nothing, when a sum would leave ±MaxAmount.
func (s *State) move(account string, m movement) *Refusal {
	path := s.path(account)
	own := *s.Accounts.Get(account)
	before := own.Overspent()
	var fits [3]bool
	own.Balance, fits[0] = addWithin(own.Balance, m.balance)
	own.Reserved, fits[1] = addWithin(own.Reserved, m.reserved)
	own.Charged, fits[2] = addWithin(own.Charged, m.charged)
	if !fits[0] || !fits[1] || !fits[2] {
		return sumOutOfRange(account)
	}
	if own.Reserved < 0 {
		panic(fmt.Sprintf("ledger: reserved credits of account %s would become %d (I1)", account, own.Reserved))
	}
	overspent := own.Overspent() - before
	if refusal := s.moveSubtrees(path, m.balance, m.reserved, overspent); refusal != nil {
		return refusal
	}
	row := s.changeAccount(account)
	row.Balance, row.Reserved, row.Charged = own.Balance, own.Reserved, own.Charged
	return nil
}

// moveSubtrees adds to the subtree sums of every account on path, or refuses and changes nothing.
func (s *State) moveSubtrees(path []string, balance, reserved, overspent Microcredits) *Refusal {
	for _, name := range path {
		row := s.Accounts.Get(name)
		_, fitsBalance := addWithin(row.SubtreeBalance, balance)
		_, fitsReserved := addWithin(row.SubtreeReserved, reserved)
		_, fitsOverspent := addWithin(row.SubtreeOverspent, overspent)
		if !fitsBalance || !fitsReserved || !fitsOverspent {
			return sumOutOfRange(name)
		}
	}
	for _, name := range path {
		row := s.changeAccount(name)
		row.SubtreeBalance += balance
		row.SubtreeReserved += reserved
		row.SubtreeOverspent += overspent
	}
	return nil
}

// changeAccount returns an account for changing, with its revision moved on: once for all changes that are committed
// together, because readers are not shown a revision ahead of its transaction (see AccountsSince).
func (s *State) changeAccount(name string) *Account {
	row := s.Accounts.change(name)
	row.Revision = max(row.Revision, s.Revision)
	return row
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
		row := s.Accounts.Get(name)
		available := row.SubtreeBalance - row.SubtreeReserved + row.SubtreeOverspent + row.Policy.OverdraftLimit
		if amount > available {
			return insufficient(account, name, amount, available)
		}
	}
	return nil
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

func sumOutOfRange(account string) *Refusal {
	return refuse(OutOfRange, "the sums of account %s would leave the range of ±%s credits", account, DisplayCredits(MaxAmount))
}
