package ledger

import "fmt"

func (d *decider) adjust(c Adjust) Verdict {
	if d.Accounts.Get(c.Account) == nil {
		return Verdict{Refusal: unknownAccount(c.Account)}
	}
	if c.Corrects != 0 {
		wrong, known := d.Entries[c.Corrects]
		if !known || wrong.Debit != c.Account && wrong.Credit != c.Account {
			return Verdict{Refusal: refuse(UnknownEntry, "account %s has no entry %d; its statement shows the numbers", c.Account, c.Corrects)}
		}
	}
	if c.Discrepancy != "" {
		found, known := d.Discrepancies[c.Discrepancy]
		switch {
		case !known:
			return Verdict{Refusal: refuse(UnknownDiscrepancy, "no discrepancy has the key %q", c.Discrepancy)}
		case !found.ResolvedAt.IsZero():
			by := ""
			if found.ResolvedBy != "" {
				by = " by " + found.ResolvedBy
			}
			return Verdict{Refusal: refuse(AlreadyResolved, "discrepancy %q was closed %s%s: %s", c.Discrepancy, stamp(found.ResolvedAt), by, found.Resolution)}
		}
	}
	if c.Amount != 0 {
		if refusal := d.move(c.Account, movement{balance: c.Amount}); refusal != nil {
			return Verdict{Refusal: refusal}
		}
		entry := Entry{
			Key: c.Key, Kind: EntryAdjustment, Debit: SystemAdjustments, Credit: c.Account, Amount: c.Amount,
			Corrects: c.Corrects, OccurredAt: d.now, Reason: c.Reason, Actor: c.Actor,
		}
		if c.Amount < 0 {
			entry.Debit, entry.Credit, entry.Amount = c.Account, SystemAdjustments, -c.Amount
		}
		d.post(entry)
	}
	if c.Discrepancy != "" {
		closed := d.Discrepancies[c.Discrepancy]
		closed.ResolvedAt, closed.Resolution, closed.ResolvedBy = d.now, c.Reason, c.Actor
		d.Discrepancies[c.Discrepancy] = closed
		d.recentResolutions = append(d.recentResolutions, closed)
	}
	return Verdict{}
}

func (d *decider) transfer(c Transfer) Verdict {
	for _, name := range []string{c.From, c.To} {
		if d.Accounts.Get(name) == nil {
			return Verdict{Refusal: unknownAccount(name)}
		}
		if refusal := d.checkNotFrozen(name); refusal != nil {
			return Verdict{Refusal: refusal}
		}
	}
	if refusal := d.checkGiving(c); refusal != nil {
		return Verdict{Refusal: refusal}
	}
	// Out first: what stays below one account must not seem to be there twice.
	if refusal := d.move(c.From, movement{balance: -c.Amount}); refusal != nil {
		return Verdict{Refusal: refusal}
	}
	if refusal := d.move(c.To, movement{balance: c.Amount}); refusal != nil {
		if again := d.move(c.From, movement{balance: c.Amount}); again != nil {
			panic("ledger: giving account " + c.From + " back what it had: " + again.Message)
		}
		return Verdict{Refusal: refusal}
	}
	draws := d.drawLots(c.From, c.Amount)
	draws = append(draws, d.addTransferredLots(c, draws)...)
	d.post(Entry{
		Key: c.Key, Kind: EntryTransfer, Debit: c.From, Credit: c.To, Amount: c.Amount, Draws: draws,
		OccurredAt: d.now, Reason: c.Reason, Actor: c.Actor,
	})
	return Verdict{}
}

// addTransferredLots lets credits that expire keep their expiry in another account. What was missing there below zero they
// fill at once, as a grant's would, after what arrives without expiry; that part is returned.
func (d *decider) addTransferredLots(c Transfer, draws []Take) (fills []Take) {
	missing := max(0, sumOf(draws)-d.permanent(c.To))
	for i, draw := range draws {
		filled := min(missing, draw.Amount)
		missing -= filled
		lot := Lot{
			Key: TransferredLotKey(c.Key, i), Account: c.To, Amount: draw.Amount, Free: draw.Amount - filled,
			ExpiresAt: d.Lots.Get(draw.Lot).ExpiresAt,
		}
		d.Lots.insert(lot.Key, lot)
		d.indexLot(lot)
		if filled > 0 {
			fills = append(fills, Take{Lot: lot.Key, Amount: filled})
		}
	}
	return fills
}

// TransferredLotKey is the key of the lot that a transfer brings for the i-th lot that it draws on, from 0.
func TransferredLotKey(transferKey string, i int) string {
	return fmt.Sprintf("transfer:%s#%d", transferKey, i)
}

func sumOf(takes []Take) (sum Microcredits) {
	for _, take := range takes {
		sum += take.Amount
	}
	return sum
}

// checkGiving is I1 for what leaves an account: it must be available without overdraft, and whoever is above the giver
// and not above the receiver must do without it too.
func (d *decider) checkGiving(c Transfer) *Refusal {
	if available := d.Accounts.Get(c.From).Available(); c.Amount > available {
		return insufficient(c.From, c.From, c.Amount, available)
	}
	shared := make(map[string]bool)
	for _, name := range d.path(c.To) {
		shared[name] = true
	}
	for _, name := range d.path(c.From) {
		row := d.Accounts.Get(name)
		if available := row.subtreeAvailable() - row.Policy.OverdraftLimit; !shared[name] && c.Amount > available {
			return insufficient(c.From, name, c.Amount, available)
		}
	}
	return nil
}

func (d *decider) freezeAccount(c FreezeAccount) Verdict {
	if d.Accounts.Get(c.Account) == nil {
		return Verdict{Refusal: unknownAccount(c.Account)}
	}
	if d.Accounts.Get(c.Account).Frozen == "" { // the first reason stands
		d.changeSettings(c.Account).Frozen = c.Reason
	}
	return Verdict{}
}

func (d *decider) unfreezeAccount(c UnfreezeAccount) Verdict {
	if d.Accounts.Get(c.Account) == nil {
		return Verdict{Refusal: unknownAccount(c.Account)}
	}
	if d.Accounts.Get(c.Account).Frozen != "" {
		d.changeSettings(c.Account).Frozen = ""
		d.postDueOf(c.Account)
	}
	return Verdict{}
}

func (d *decider) postDue(c PostDue) Verdict {
	if d.Accounts.Get(c.Account) == nil {
		return Verdict{Refusal: unknownAccount(c.Account)}
	}
	d.postDueOf(c.Account)
	return Verdict{}
}

func (d *decider) refund(c Refund) Verdict {
	existing := d.Allocations.Get(c.PodUID)
	switch {
	case existing == nil:
		return Verdict{Refusal: unknownPod(c.PodUID)}
	case existing.State != AllocationEnded:
		return Verdict{Refusal: refuse(StillRunning, "the attempt of pod %s has not ended; a refund is of what it was charged", c.PodUID)}
	case existing.RefundedFor != "":
		return Verdict{Refusal: refuse(AlreadyRefunded, "%s credits of pod %s were given back already, because it was %s",
			DisplayCredits(existing.Refunded), c.PodUID, existing.RefundedFor)}
	}
	amount := d.refundable(*existing, c)
	if amount == 0 {
		return Verdict{}
	}
	payer := d.Reservations.Get(existing.Reservation).Payer
	d.beginSpending(payer, existing.Account)
	if refusal := d.transact(payer, existing.Account, movement{balance: amount, charged: -amount}); refusal != nil {
		return Verdict{Refusal: refusal}
	}
	row := d.Allocations.change(c.PodUID)
	row.Refunded, row.RefundedFor = amount, c.Cause
	d.post(Entry{
		Key: "refund:" + c.PodUID, Kind: EntryRefund, Debit: SystemRevenue, Credit: payer, Spender: row.Account, Amount: amount,
		Reservation: row.Reservation, Allocation: c.PodUID, OccurredAt: row.EndedAt, Reason: string(c.Cause) + reasonAfterColon(c.Reason),
	})
	return Verdict{Refunded: amount}
}

func reasonAfterColon(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

// refundable is what the spender's policy gives back, never more than was charged (L8).
func (d *decider) refundable(a Allocation, c Refund) Microcredits {
	policy := d.Accounts.Get(a.Account).Policy.Refunds
	switch c.Cause {
	case RefundFailed:
		return percentOf(a.Charged, policy.FailedPercent)
	case RefundDeviceFault:
		if policy.DeviceFault {
			return a.Charged
		}
		return percentOf(a.Charged, policy.FailedPercent)
	}
	if !policy.PreemptedSinceCheckpoint {
		return percentOf(a.Charged, policy.PreemptedPercent)
	}
	if a.StartedAt.IsZero() {
		return 0
	}
	from := later(a.StartedAt, Instant(c.CheckpointedAt))
	if !from.Before(a.EndedAt) {
		return 0
	}
	return min(a.Charged, mustCharge(a, span{from, a.EndedAt}))
}

// percentOf rounds down, without overflow: amounts reach 4×10^18.
func percentOf(amount Microcredits, percent int64) Microcredits {
	return amount/100*Microcredits(percent) + amount%100*Microcredits(percent)/100
}
