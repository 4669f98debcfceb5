package ledger

import "slices"

func (d *decider) placeHold(c PlaceHold) Verdict {
	reservation, verdict := d.planHold(c, false)
	if reservation == nil {
		return verdict
	}
	if refusal := d.applyHold(*reservation); refusal != nil {
		return Verdict{Refusal: refusal}
	}
	return Verdict{RateVersion: reservation.RateVersion}
}

// planHold decides a hold without placing it: a reservation to place, or nil and the verdict that stands instead.
// unlimited: missing credits do not refuse it, because what it is for runs already (I9), or is part of a gang that is asked about as a whole.
func (d *decider) planHold(c PlaceHold, unlimited bool) (*Reservation, Verdict) {
	account := d.Accounts.Get(c.Account)
	if existing := d.Reservations.Get(c.UID); existing != nil {
		return nil, existingHold(c, *existing)
	}
	if account == nil {
		return nil, Verdict{Refusal: unknownAccount(c.Account)}
	}
	rate := d.Rates.Get(c.Class)
	if rate == nil {
		return nil, Verdict{Refusal: refuse(UnknownClass, "GPU class %s has no rate; create a GPUClass of that name", c.Class)}
	}
	amount, err := HoldPrice(rate.Rate, c.GPUSeconds)
	if err != nil {
		return nil, Verdict{Refusal: refuse(OutOfRange, "%s; ask for a shorter max-runtime or fewer GPUs", err)}
	}
	payer := d.payerOf(c.Account)
	if refusal := d.checkHold(payer, c.Account, amount); refusal != nil && !unlimited {
		return nil, Verdict{Refusal: refusal}
	}
	return &Reservation{
		UID: c.UID, Account: c.Account, Payer: payer, PolicyVersion: account.PolicyVersion, Workload: c.Workload, Class: c.Class,
		RateVersion: rate.Version, Rate: rate.Rate,
		MaxGPUs: c.MaxGPUs, GPUSeconds: c.GPUSeconds, Amount: amount, State: Held, CreatedAt: d.now,
	}, Verdict{}
}

// existingHold answers a hold for a workload that has a reservation: with it if it is open and says the same.
func existingHold(c PlaceHold, existing Reservation) Verdict {
	same := existing.Account == c.Account && existing.Class == c.Class &&
		existing.MaxGPUs == c.MaxGPUs && existing.GPUSeconds == c.GPUSeconds
	switch {
	case !same:
		return Verdict{Refusal: refuse(TermsDiffer,
			"workload %s already has a reservation for %d GPU-seconds on up to %d GPUs of class %s paid by %s; "+
				"this asks for %d on up to %d of %s paid by %s; create a new workload for other terms",
			c.UID, existing.GPUSeconds, existing.MaxGPUs, existing.Class, existing.Account,
			c.GPUSeconds, c.MaxGPUs, c.Class, c.Account)}
	case !existing.Open():
		return Verdict{Refusal: alreadyClosed(existing)}
	}
	return Verdict{RateVersion: existing.RateVersion, Replayed: true}
}

func alreadyClosed(r Reservation) *Refusal {
	return refuse(ReservationClosed, "the reservation of workload %s is already %s since %s, with %s credits charged",
		r.UID, r.State, stamp(r.ClosedAt), DisplayCredits(r.Charged))
}

func (d *decider) applyHold(r Reservation) *Refusal {
	if refusal := d.transact(r.Payer, r.Account, movement{reserved: r.Amount, held: r.Amount}); refusal != nil {
		return refusal
	}
	d.insertHold(r)
	return nil
}

// insertHold is the part of applyHold after its amount is set aside.
func (d *decider) insertHold(r Reservation) {
	r.Takes = d.holdLots(r.Payer, r.Amount)
	d.Reservations.insert(r.UID, r)
	for _, name := range []string{r.Account, r.Payer} {
		d.noteUse(name, func(use *AccountUse) { use.Reservations = true })
	}
}

func (d *decider) renewHold(c RenewHold) Verdict {
	existing := d.Reservations.Get(c.UID)
	if existing == nil {
		return Verdict{Refusal: refuse(UnknownReservation, "workload %s has no reservation", c.UID)}
	}
	if !existing.Open() {
		return Verdict{Refusal: alreadyClosed(*existing)}
	}
	renewed := *existing
	renewed.GPUSeconds += c.GPUSeconds
	var err error
	if renewed.Amount, err = HoldPrice(existing.Rate, renewed.GPUSeconds); err != nil || renewed.GPUSeconds > MaxGPUSeconds {
		return Verdict{Refusal: refuse(OutOfRange, "workload %s cannot hold %d GPU-seconds more", c.UID, c.GPUSeconds)}
	}
	// What was used beyond the hold is paid already; only the rest is set aside.
	more := renewed.Remaining() - existing.Remaining()
	if refusal := d.checkHold(existing.Payer, existing.Account, more); refusal != nil {
		return Verdict{Refusal: refusal}
	}
	if refusal := d.transact(existing.Payer, existing.Account, movement{reserved: more, held: more}); refusal != nil {
		return Verdict{Refusal: refusal}
	}
	row := d.Reservations.change(c.UID)
	row.GPUSeconds, row.Amount = renewed.GPUSeconds, renewed.Amount
	row.Takes = d.earliestFirst(slices.Concat(row.Takes, d.holdLots(row.Payer, more)))
	return Verdict{}
}

func (d *decider) closeReservation(c CloseReservation) Verdict {
	existing := d.Reservations.Get(c.UID)
	if existing == nil {
		return Verdict{Refusal: refuse(UnknownReservation, "workload %s has no reservation", c.UID)}
	}
	if !existing.Open() { // L1, L11: the second call says so and changes nothing
		return Verdict{Refusal: alreadyClosed(*existing)}
	}
	if gpus, pods := d.openGPUs(c.UID, ""); len(pods) > 0 {
		return Verdict{Refusal: refuse(ReservationInUse,
			"%d pods still hold %d GPUs under the reservation of workload %s, e.g. pod %s; end them first", len(pods), gpus, c.UID, pods[0])}
	}
	outcome := c.Outcome
	switch {
	case existing.State == Active: // whatever was asked: something was allocated, so there is usage to settle
		outcome = Settled
	case outcome == Settled: // nothing was allocated, so there is nothing to settle
		outcome = Released
	}
	back := movement{reserved: -existing.Remaining(), held: -existing.Remaining()}
	if existing.State == Active {
		back.running = -1
	}
	if refusal := d.transact(existing.Payer, existing.Account, back); refusal != nil {
		return Verdict{Refusal: refusal}
	}
	row := d.Reservations.change(c.UID)
	row.enter(outcome)
	row.Reason, row.ClosedAt = c.Reason, d.now
	takes := row.Takes
	row.Takes = nil
	d.releaseTakes(takes)
	return Verdict{}
}

// enter changes the state; an illegal transition is a fault of Decide.
func (r *Reservation) enter(next ReservationState) {
	if r.State != next && !r.State.MayBecome(next) {
		panic("ledger: reservation " + r.UID + " cannot go from " + string(r.State) + " to " + string(next))
	}
	r.State = next
}

// enter changes the state; an illegal transition is a fault of Decide.
func (a *Allocation) enter(next AllocationState) {
	if a.State != next && !a.State.MayBecome(next) {
		panic("ledger: allocation " + a.PodUID + " cannot go from " + string(a.State) + " to " + string(next))
	}
	a.State = next
}
