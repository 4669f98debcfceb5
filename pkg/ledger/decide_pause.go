package ledger

import "slices"

// ensureHold and pauseHold follow a workload that waits for admission more than once: what it holds comes and goes, the
// reservation stays the same one from its first hold to its one end (I5). See docs/designs/kueue.md.

func (d *decider) ensureHold(c EnsureHold) Verdict {
	hold := c.Hold
	existing := d.Reservations.Get(hold.UID)
	if existing == nil {
		if c.From != 0 {
			return Verdict{Refusal: refuse(UnknownReservation, "workload %s has no reservation", hold.UID)}
		}
		return d.placeHold(hold)
	}
	if !existing.Open() {
		return Verdict{Refusal: alreadyClosed(*existing)}
	}
	if existing.Account != hold.Account {
		return Verdict{Refusal: refuse(TermsDiffer, "the reservation of workload %s is paid by %s, this asks %s to pay", hold.UID, existing.Account, hold.Account)}
	}
	if refusal := changedSince(*existing, c.From); refusal != nil {
		return Verdict{Refusal: refusal}
	}
	next, refusal := d.ensured(*existing, hold)
	if refusal != nil {
		return Verdict{Refusal: refusal}
	}
	more := next.Remaining() - existing.Remaining()
	if more == 0 && next.MaxGPUs == existing.MaxGPUs && next.Class == existing.Class {
		return Verdict{RateVersion: existing.RateVersion, Replayed: true}
	}
	if more > 0 {
		if refusal := d.checkHold(existing.Payer, existing.Account, more); refusal != nil {
			return Verdict{Refusal: refusal}
		}
	}
	if refusal := d.transact(existing.Payer, existing.Account, movement{reserved: more, held: more}); refusal != nil {
		return Verdict{Refusal: refusal}
	}
	row := d.Reservations.change(hold.UID)
	next.Takes = d.earliestFirst(slices.Concat(row.Takes, d.holdLots(row.Payer, more)))
	*row = next
	d.noteRepriced(hold.UID)
	return Verdict{RateVersion: next.RateVersion}
}

// ensured is the reservation as it covers the hold from now on.
func (d *decider) ensured(r Reservation, hold PlaceHold) (Reservation, *Refusal) {
	_, pods := d.openGPUs(r.UID, "")
	anew := r.Remaining() == 0 && len(pods) == 0
	switch {
	case anew:
		rate := d.Rates.Get(hold.Class)
		if rate == nil {
			return r, refuse(UnknownClass, "GPU class %s has no rate; create a GPUClass of that name", hold.Class)
		}
		r.Class, r.RateVersion, r.Rate, r.MaxGPUs = hold.Class, rate.Version, rate.Rate, hold.MaxGPUs
	case r.Class != hold.Class:
		return r, refuse(TermsDiffer, "the reservation of workload %s sets credits aside for class %s, this asks for %s; give it back first", r.UID, r.Class, hold.Class)
	default:
		r.MaxGPUs = max(r.MaxGPUs, hold.MaxGPUs)
	}
	// What was used is rounded up to whole GPU-seconds, so that no less than what is asked for remains.
	used := usedGPUSeconds(r.Charged, r.Rate)
	if r.Charged > Microcredits(r.Rate)*Microcredits(used) {
		used++
	}
	if used > MaxGPUSeconds || used+hold.GPUSeconds > MaxGPUSeconds {
		return r, refuse(OutOfRange, "workload %s cannot hold %d GPU-seconds more", r.UID, hold.GPUSeconds)
	}
	if anew {
		r.GPUSeconds = used + hold.GPUSeconds
	} else {
		r.GPUSeconds = max(r.GPUSeconds, used+hold.GPUSeconds)
	}
	var err error
	if r.Amount, err = HoldPrice(r.Rate, r.GPUSeconds); err != nil {
		return r, refuse(OutOfRange, "%s; ask for a shorter max-runtime or fewer GPUs", err)
	}
	return r, nil
}

func (d *decider) pauseHold(c PauseHold) Verdict {
	existing := d.Reservations.Get(c.UID)
	if existing == nil {
		return Verdict{Refusal: refuse(UnknownReservation, "workload %s has no reservation", c.UID)}
	}
	if !existing.Open() {
		return Verdict{Refusal: alreadyClosed(*existing)}
	}
	if refusal := changedSince(*existing, c.From); refusal != nil {
		return Verdict{Refusal: refusal}
	}
	if gpus, pods := d.openGPUs(c.UID, ""); len(pods) > 0 {
		return Verdict{Refusal: refuse(ReservationInUse,
			"%d pods still hold %d GPUs under the reservation of workload %s, e.g. pod %s; end them first", len(pods), gpus, c.UID, pods[0])}
	}
	// Rounded down, so that nothing remains; the fraction of a GPU-second that is left out was charged.
	seconds := min(existing.GPUSeconds, usedGPUSeconds(existing.Charged, existing.Rate))
	if seconds == existing.GPUSeconds {
		return Verdict{Replayed: true}
	}
	amount, err := HoldPrice(existing.Rate, seconds)
	if err != nil {
		panic("ledger: reservation " + c.UID + " shrinks to a price beyond its own")
	}
	back := existing.Remaining()
	if refusal := d.transact(existing.Payer, existing.Account, movement{reserved: -back, held: -back}); refusal != nil {
		return Verdict{Refusal: refusal}
	}
	row := d.Reservations.change(c.UID)
	row.GPUSeconds, row.Amount = seconds, amount
	takes := row.Takes
	row.Takes = nil
	d.releaseTakes(takes)
	return Verdict{}
}

// usedGPUSeconds is what was charged, in whole GPU-seconds, rounded down.
func usedGPUSeconds(charged Microcredits, rate Rate) int64 { return int64(charged) / int64(rate) }

func changedSince(r Reservation, seen int64) *Refusal {
	if r.GPUSeconds == seen {
		return nil
	}
	return refuse(TermsDiffer, "the reservation of workload %s is for %d GPU-seconds by now, this was decided when it was for %d", r.UID, r.GPUSeconds, seen)
}

func (s *State) noteRepriced(uid string) {
	if s.recentRepriced == nil {
		s.recentRepriced = make(map[string]bool)
	}
	s.recentRepriced[uid] = true
}
