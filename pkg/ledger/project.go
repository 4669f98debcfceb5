package ledger

// ProjectSubtrees computes every account's subtree sums from the accounts' own figures and the spenders' days (I2): the
// slow, obvious way, account by account up to the root. It changes the accounts in place. Ancestors that are not in the map,
// and whatever lies beyond a cycle, count nothing.
func ProjectSubtrees(accounts map[string]*Account, spending []DailySpending) {
	for _, a := range accounts {
		a.SubtreeBalance, a.SubtreeReserved, a.SubtreeOverspent = 0, 0, 0
		a.SubtreeHeld, a.SubtreeRunning, a.SubtreeSpent = 0, 0, 0
	}
	upwards := func(from *Account, visit func(*Account)) {
		visited := make(map[string]bool)
		for at := from; at != nil && !visited[at.Name]; at = accounts[at.Parent] {
			visited[at.Name] = true
			visit(at)
		}
	}
	for _, a := range accounts {
		upwards(a, func(at *Account) {
			at.SubtreeBalance += a.Balance
			at.SubtreeReserved += a.Reserved
			at.SubtreeOverspent += a.Overspent()
			at.SubtreeHeld += a.Held
			at.SubtreeRunning += a.Running
		})
	}
	for _, day := range spending {
		upwards(accounts[day.Account], func(at *Account) {
			if at.Policy.Spending.Period != "" && !day.Day.Before(at.SpentSince) {
				at.SubtreeSpent += day.Amount
			}
		})
	}
}
