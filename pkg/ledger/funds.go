package ledger

import "fmt"

// movement is a change of the figures that a payer and a spender have of their own. It changes the subtree sums of both
// and of every ancestor by the same amounts, in the same transaction (I2, L27).
type movement struct {
	// On the payer and above it.
	balance, reserved Microcredits
	// On the spender and above it; beginSpending comes before what is charged.
	held, charged Microcredits
	running       int64
}

// transact applies a movement. It refuses, changing nothing, when a sum would leave ±MaxAmount.
func (s *State) transact(payer, spender string, m movement) *Refusal {
	if refusal := s.checkRange(payer, spender, m); refusal != nil {
		return refusal
	}
	if m.balance != 0 || m.reserved != 0 {
		s.pay(payer, m)
	}
	if m.held != 0 || m.charged != 0 || m.running != 0 {
		s.spend(spender, m)
	}
	return nil
}

// move is transact for a payer alone.
func (s *State) move(account string, m movement) *Refusal { return s.transact(account, account, m) }

func (s *State) checkRange(payer, spender string, m movement) *Refusal {
	paying := s.Accounts.Get(payer)
	own := afterPaying(*paying, m)
	overspent := own.Overspent() - paying.Overspent()
	for _, sum := range []struct {
		account string
		a, b    Microcredits
	}{
		{payer, paying.Balance, m.balance}, {payer, paying.Reserved, m.reserved},
		{spender, s.Accounts.Get(spender).Held, m.held}, {spender, s.Accounts.Get(spender).Charged, m.charged},
	} {
		if _, fits := addWithin(sum.a, sum.b); !fits {
			return sumOutOfRange(sum.account)
		}
	}
	if own.Reserved < 0 {
		panic(fmt.Sprintf("ledger: reserved credits of account %s would become %d (I1)", payer, own.Reserved))
	}
	if refusal := s.checkSubtrees(s.path(payer), subtreeSums{balance: m.balance, reserved: m.reserved, overspent: overspent}); refusal != nil {
		return refusal
	}
	return s.checkSubtrees(s.path(spender), subtreeSums{held: m.held, spent: m.charged})
}

func afterPaying(a Account, m movement) Account {
	a.Balance += m.balance
	a.Reserved += m.reserved
	return a
}

func (s *State) pay(payer string, m movement) {
	row := s.changeAccount(payer)
	before := row.Overspent()
	*row = afterPaying(*row, m)
	s.addToSubtrees(s.path(payer), subtreeSums{balance: m.balance, reserved: m.reserved, overspent: row.Overspent() - before})
}

func (s *State) spend(spender string, m movement) {
	row := s.changeAccount(spender)
	row.Held += m.held
	row.Charged += m.charged
	row.Running += m.running
	if row.Held < 0 || row.Charged < 0 || row.Running < 0 {
		panic(fmt.Sprintf("ledger: account %s would hold %d, have been charged %d and run %d", spender, row.Held, row.Charged, row.Running))
	}
	s.addToSubtrees(s.path(spender), subtreeSums{held: m.held, running: m.running, spent: m.charged})
}

// subtreeSums are the sums that an account keeps of everything below it.
type subtreeSums struct {
	balance, reserved, overspent, held, spent Microcredits
	running                                   int64
}

func sumsOf(a Account) subtreeSums {
	return subtreeSums{a.SubtreeBalance, a.SubtreeReserved, a.SubtreeOverspent, a.SubtreeHeld, 0, a.SubtreeRunning}
}

func (m subtreeSums) negated() subtreeSums {
	return subtreeSums{-m.balance, -m.reserved, -m.overspent, -m.held, -m.spent, -m.running}
}

// checkSubtrees refuses what would take a sum of an account on path out of range.
func (s *State) checkSubtrees(path []string, m subtreeSums) *Refusal {
	for _, name := range path {
		row := s.Accounts.Get(name)
		for _, sum := range [][2]Microcredits{
			{row.SubtreeBalance, m.balance}, {row.SubtreeReserved, m.reserved}, {row.SubtreeOverspent, m.overspent},
			{row.SubtreeHeld, m.held}, {row.SubtreeSpent, m.spent},
		} {
			if _, fits := addWithin(sum[0], sum[1]); !fits {
				return sumOutOfRange(name)
			}
		}
	}
	return nil
}

// addToSubtrees adds to the subtree sums of every account on path; checkSubtrees comes first.
func (s *State) addToSubtrees(path []string, m subtreeSums) {
	if m == (subtreeSums{}) {
		return
	}
	for _, name := range path {
		row := s.changeAccount(name)
		row.SubtreeBalance += m.balance
		row.SubtreeReserved += m.reserved
		row.SubtreeOverspent += m.overspent
		row.SubtreeHeld += m.held
		row.SubtreeRunning += m.running
		if row.Policy.Spending.Period != "" {
			row.SubtreeSpent += m.spent
		}
	}
}

// changeAccount returns an account for changing, with its revision moved on: once for all changes that are committed
// together, because readers are not shown a revision ahead of its transaction (see AccountsSince).
func (s *State) changeAccount(name string) *Account {
	row := s.Accounts.change(name)
	row.Revision = max(row.Revision, s.Revision)
	return row
}

// changeSettings is changeAccount for what SetAccount and FreezeAccount change.
func (s *State) changeSettings(name string) *Account {
	if s.recentSettings == nil {
		s.recentSettings = make(map[string]bool)
	}
	s.recentSettings[name] = true
	return s.changeAccount(name)
}

// payerOf is the account whose balance pays for a spender's workloads: the first one from it upwards whose funding is its
// own, or the root.
func (s *State) payerOf(spender string) string {
	for row := s.Accounts.Get(spender); ; row = s.Accounts.Get(row.Parent) {
		if row.Policy.Funding != FundingAncestor || row.Parent == "" {
			return row.Name
		}
	}
}

func sumOutOfRange(account string) *Refusal {
	return refuse(OutOfRange, "the sums of account %s would leave the range of ±%s credits", account, DisplayCredits(MaxAmount))
}
