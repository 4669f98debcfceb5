package ledger

// ProjectSubtrees computes every account's subtree sums from the accounts' own figures (I2): the slow, obvious way,
// account by account up to the root. It changes the accounts in place. Ancestors that are not in the map, and
// whatever lies beyond a cycle, count nothing.
func ProjectSubtrees(accounts map[string]*Account) {
	for _, a := range accounts {
		a.SubtreeBalance, a.SubtreeReserved, a.SubtreeOverspent = 0, 0, 0
	}
	for _, a := range accounts {
		visited := make(map[string]bool)
		for at := a; at != nil && !visited[at.Name]; at = accounts[at.Parent] {
			visited[at.Name] = true
			at.SubtreeBalance += a.Balance
			at.SubtreeReserved += a.Reserved
			at.SubtreeOverspent += a.Overspent()
		}
	}
}
