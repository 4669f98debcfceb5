package ledger

import (
	"fmt"
	"slices"
	"strings"
)

// lotsOf returns an account's loaded lots, earliest expiring first.
func (s *State) lotsOf(account string) []*Lot {
	var lots []*Lot
	for _, key := range s.accountLots[account] {
		lots = append(lots, s.Lots.Get(key))
	}
	slices.SortFunc(lots, expiresFirst)
	return lots
}

func expiresFirst(a, b *Lot) int {
	if order := a.ExpiresAt.Compare(b.ExpiresAt); order != 0 {
		return order
	}
	return strings.Compare(a.Key, b.Key)
}

// earliestFirst puts what a hold took at several times into the one order in which it is used.
func (s *State) earliestFirst(takes []Take) []Take {
	merged := mergeTakes(takes)
	slices.SortFunc(merged, func(a, b Take) int { return expiresFirst(s.Lots.Get(a.Lot), s.Lots.Get(b.Lot)) })
	return merged
}

// permanent is what of an account's balance belongs to no lot; below zero when more was used than was there.
func (s *State) permanent(account string) Microcredits {
	sum := s.Accounts.Get(account).Balance
	for _, lot := range s.lotsOf(account) {
		sum -= lot.Free + lot.Held
	}
	return sum
}

// holdLots sets aside up to amount of an account's lots, earliest expiring first, and says what was taken; the rest of
// the amount is permanent credits.
func (s *State) holdLots(account string, amount Microcredits) []Take {
	return s.takeFree(account, amount, func(lot *Lot, taken Microcredits) { lot.Held += taken })
}

// drawLots uses up to amount of an account's lots that no hold has, likewise.
func (s *State) drawLots(account string, amount Microcredits) []Take {
	return s.takeFree(account, amount, func(*Lot, Microcredits) {})
}

func (s *State) takeFree(account string, amount Microcredits, put func(*Lot, Microcredits)) []Take {
	var takes []Take
	for _, lot := range s.lotsOf(account) {
		taken := min(lot.Free, amount)
		if taken <= 0 {
			continue
		}
		row := s.Lots.change(lot.Key)
		row.Free -= taken
		put(row, taken)
		takes = append(takes, Take{Lot: lot.Key, Amount: taken})
		amount -= taken
	}
	return takes
}

// useTakes uses up to amount of what a hold took from lots, in order. It returns what was used and what the hold has left.
func (s *State) useTakes(takes []Take, amount Microcredits) (used, left []Take) {
	for _, take := range takes {
		part := min(take.Amount, amount)
		if part > 0 {
			s.Lots.change(take.Lot).Held -= part
			used = append(used, Take{Lot: take.Lot, Amount: part})
			amount -= part
		}
		if take.Amount > part {
			left = append(left, Take{Lot: take.Lot, Amount: take.Amount - part})
		}
	}
	return used, left
}

// releaseTakes gives back what a hold took from lots. Whatever has expired meanwhile leaves at once.
func (d *decider) releaseTakes(takes []Take) {
	for _, take := range takes {
		row := d.Lots.change(take.Lot)
		row.Held -= take.Amount
		row.Free += take.Amount
	}
	for _, take := range takes {
		if lot := d.Lots.Get(take.Lot); !lot.ExpiresAt.After(d.now) {
			d.expire(*lot)
		}
	}
}

// addLot brings a lot to an account whose balance it is already part of. What was missing below zero it fills at once;
// that part is returned, as the draw that the entry names.
func (d *decider) addLot(lot Lot) []Take {
	missing := max(0, -(d.permanent(lot.Account) - lot.Amount))
	filled := min(missing, lot.Amount)
	lot.Free = lot.Amount - filled
	d.Lots.insert(lot.Key, lot)
	d.indexLot(lot)
	if filled == 0 {
		return nil
	}
	return []Take{{Lot: lot.Key, Amount: filled}}
}

// expire takes what is free of a lot out of its account. A frozen account keeps it until it is unfrozen. A balance that
// cannot go lower keeps it too, until it can.
func (d *decider) expire(lot Lot) bool {
	amount := lot.Free
	if amount == 0 || d.Accounts.Get(lot.Account).Frozen != "" {
		return false
	}
	if refusal := d.move(lot.Account, movement{balance: -amount}); refusal != nil {
		return false
	}
	row := d.Lots.change(lot.Key)
	row.Free, row.Expired = 0, row.Expired+amount
	d.post(Entry{
		// A lot expires again when a hold gives back more of it: what had expired before tells the entries apart.
		Key: fmt.Sprintf("expiry:%s:%d", lot.Key, lot.Expired), Kind: EntryExpiry, Debit: lot.Account, Credit: SystemExpired,
		Amount: amount, OccurredAt: lot.ExpiresAt, Draws: []Take{{Lot: lot.Key, Amount: amount}},
		Reason: "expired " + stamp(lot.ExpiresAt),
	})
	return true
}
