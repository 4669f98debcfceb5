package ledger

import "time"

// Room is what one account of a spender's path still allows.
type Room struct {
	Account string `json:"account"`
	// Pays: it is the account whose balance pays.
	Pays bool `json:"pays"`
	// Credits is what may still be set aside, overdraft included, by the balance of the payer or, above it, of the
	// account and everything below it together; nil below the payer, where balances do not count.
	Credits *Microcredits `json:"credits_left_microcredits,omitempty"`
	// Spending is what is left of the limit of the current period, which ends at SpendingUntil; nil without a limit.
	Spending      *Microcredits `json:"spending_left_microcredits,omitempty"`
	SpendingUntil time.Time     `json:"spending_until,omitzero"`
	// RunningJobs is how many more jobs may run at once, 0 or less for none; nil without a limit.
	RunningJobs *int64 `json:"running_jobs_left,omitempty"`
	// Frozen says why nothing may be set aside; empty for an account in order.
	Frozen string `json:"frozen,omitempty"`
}

// Rooms is what a spender and every account above it still allow at a moment: the limits that a hold is checked
// against. path is the spender, its parent, and so on to the root, not empty.
func Rooms(path []Account, now time.Time) []Room {
	payer := 0
	for payer < len(path)-1 && path[payer].Policy.Funding == FundingAncestor {
		payer++
	}
	rooms := make([]Room, len(path))
	for i, a := range path {
		room := Room{Account: a.Name, Pays: i == payer, Frozen: a.Frozen}
		if i >= payer {
			credits := a.subtreeAvailable()
			if i == payer {
				credits = min(credits, a.Available()+a.Policy.OverdraftLimit)
			}
			room.Credits = &credits
		}
		if limit := a.Policy.Spending; limit.Period != "" {
			left := limit.Amount - a.SubtreeHeld
			if !limit.Period.Start(now).After(a.SpentSince) { // else a period began that nothing was spent in yet
				left -= a.SubtreeSpent
			}
			room.Spending, room.SpendingUntil = &left, limit.Period.Next(now)
		}
		if most := a.Policy.RunningJobs; most > 0 {
			left := most - a.SubtreeRunning
			room.RunningJobs = &left
		}
		rooms[i] = room
	}
	return rooms
}
