package slow

import (
	"math/big"
	"slices"

	"github.com/gpubank/gpubank/pkg/ledger"
)

func (l *Ledger) hold(uid string) *hold {
	for i := range l.holds {
		if l.holds[i].UID == uid {
			return &l.holds[i]
		}
	}
	return nil
}

// price is rate × gpuSeconds if an amount can say it.
func price(rate ledger.Rate, gpuSeconds *big.Int) (ledger.Microcredits, bool) {
	product := &total{*new(big.Int).Mul(big.NewInt(int64(rate)), gpuSeconds)}
	if !product.fits() {
		return 0, false
	}
	return product.amount(), true
}

func (l *Ledger) placeHold(c ledger.PlaceHold) ledger.Verdict {
	planned, instead := l.plan(c, false)
	if instead != nil {
		return *instead
	}
	if !l.try(func() { l.open(planned) }) {
		return refused(ledger.OutOfRange)
	}
	return ledger.Verdict{RateVersion: planned.RateVersion}
}

// plan is the reservation that a command would open, or the verdict that stands instead.
func (l *Ledger) plan(c ledger.PlaceHold, running bool) (hold, *ledger.Verdict) {
	no := func(code ledger.RefusalCode) (hold, *ledger.Verdict) {
		verdict := refused(code)
		return hold{}, &verdict
	}
	if has := l.hold(c.UID); has != nil {
		switch {
		case has.Account != c.Account || has.Class != c.Class || has.MaxGPUs != c.MaxGPUs || has.GPUSeconds != c.GPUSeconds:
			return no(ledger.TermsDiffer)
		case !has.Open():
			return no(ledger.ReservationClosed)
		}
		return hold{}, &ledger.Verdict{RateVersion: has.RateVersion, Replayed: true}
	}
	a, rate := l.account(c.Account), l.rate(c.Class)
	if a == nil {
		return no(ledger.UnknownAccount)
	}
	if rate.Version == 0 {
		return no(ledger.UnknownClass)
	}
	amount, fits := price(rate.Rate, big.NewInt(c.GPUSeconds))
	if !fits {
		return no(ledger.OutOfRange)
	}
	payer := l.payer(c.Account)
	if refusal := l.limits(payer, c.Account, amount); refusal != nil && !running {
		return hold{}, refusal
	}
	return hold{Reservation: ledger.Reservation{
		UID: c.UID, Account: c.Account, Payer: payer, PolicyVersion: a.version, Workload: c.Workload, Class: c.Class,
		RateVersion: rate.Version, Rate: rate.Rate, MaxGPUs: c.MaxGPUs, GPUSeconds: c.GPUSeconds, Amount: amount,
		State: ledger.Held, CreatedAt: l.now,
	}}, nil
}

// payer is the nearest account, from the spender upwards, that does not leave it to the one above; a root cannot.
func (l *Ledger) payer(spender string) string {
	names := l.above(spender)
	for _, name := range names {
		if l.account(name).policy.Funding != ledger.FundingAncestor {
			return name
		}
	}
	return names[len(names)-1]
}

func (l *Ledger) open(h hold) {
	h.taken = l.draw(h.Payer, h.Amount)
	l.holds = append(l.holds, h)
}

// limits are those of a new hold, or of more of one: nil if every one allows it.
func (l *Ledger) limits(payer, spender string, amount ledger.Microcredits) *ledger.Verdict {
	for _, name := range []string{spender, payer} {
		if l.isFrozen(name) {
			verdict := frozen(name)
			return &verdict
		}
	}
	asked := new(total).add(amount)
	own := l.available(payer).add(l.account(payer).policy.OverdraftLimit)
	if asked.Cmp(&own.Int) > 0 {
		return limited(ledger.InsufficientCredits, payer, amount, own.amount())
	}
	for _, name := range l.above(payer) {
		if available := l.subtreeAvailable(name).add(l.account(name).policy.OverdraftLimit); asked.Cmp(&available.Int) > 0 {
			return limited(ledger.InsufficientCredits, name, amount, available.amount())
		}
	}
	for _, name := range l.above(spender) {
		limit := l.account(name).policy.Spending
		if limit.Period == "" {
			continue
		}
		left := new(total).add(limit.Amount)
		left.Sub(&left.Int, &l.sumBelow(name, l.held).Int)
		left.Sub(&left.Int, &l.subtreeSpent(name).Int)
		if asked.Cmp(&left.Int) > 0 {
			return limited(ledger.SpendingLimited, name, amount, left.amount())
		}
	}
	return nil
}

// subtreeAvailable is what an account and everyone below it have available, what single ones overspent left out.
func (l *Ledger) subtreeAvailable(name string) *total {
	sum := l.sumBelow(name, l.available)
	sum.Add(&sum.Int, &l.sumBelow(name, l.overspent).Int)
	return sum
}

func (l *Ledger) renewHold(c ledger.RenewHold) ledger.Verdict {
	h := l.hold(c.UID)
	if h == nil {
		return refused(ledger.UnknownReservation)
	}
	if !h.Open() {
		return refused(ledger.ReservationClosed)
	}
	seconds := h.GPUSeconds + c.GPUSeconds
	amount, fits := price(h.Rate, big.NewInt(seconds))
	if !fits || seconds > ledger.MaxGPUSeconds {
		return refused(ledger.OutOfRange)
	}
	renewed := *h
	renewed.GPUSeconds, renewed.Amount = seconds, amount
	more := l.remaining(renewed) - l.remaining(*h)
	if refusal := l.limits(h.Payer, h.Account, more); refusal != nil {
		return *refusal
	}
	if !l.try(func() {
		renewed.taken = slices.Concat(h.taken, l.draw(h.Payer, more))
		*l.hold(c.UID) = renewed
	}) {
		return refused(ledger.OutOfRange)
	}
	return ledger.Verdict{}
}

func (l *Ledger) closeReservation(c ledger.CloseReservation) ledger.Verdict {
	h := l.hold(c.UID)
	if h == nil {
		return refused(ledger.UnknownReservation)
	}
	if !h.Open() {
		return refused(ledger.ReservationClosed)
	}
	for _, a := range l.attempts {
		if a.Reservation == c.UID && a.Open() {
			return refused(ledger.ReservationInUse)
		}
	}
	outcome := c.Outcome
	if h.State == ledger.Active {
		outcome = ledger.Settled
	} else if outcome == ledger.Settled {
		outcome = ledger.Released
	}
	payer := h.Payer
	if !l.try(func() {
		h := l.hold(c.UID)
		h.State, h.Reason, h.ClosedAt = outcome, c.Reason, l.now
	}) {
		return refused(ledger.OutOfRange)
	}
	l.expireReturned(payer)
	return ledger.Verdict{}
}

// expireReturned: what comes back after its expiry leaves at once.
func (l *Ledger) expireReturned(payer string) {
	if l.isFrozen(payer) {
		return
	}
	for _, one := range l.lotsOf(payer) {
		if l.freeOf(one) > 0 && !one.expires.After(l.now) {
			l.try(func() { l.expire(one) })
		}
	}
}
