package slow

import (
	"math/big"
	"slices"

	"github.com/gpubank/gpubank/pkg/ledger"
)

func (l *Ledger) inUse(uid string) bool {
	return slices.ContainsFunc(l.attempts, func(a attempt) bool { return a.Reservation == uid && a.Open() })
}

func (l *Ledger) ensureHold(c ledger.EnsureHold) ledger.Verdict {
	h := l.hold(c.Hold.UID)
	switch {
	case h == nil && c.From != 0:
		return refused(ledger.UnknownReservation)
	case h == nil:
		return l.placeHold(c.Hold)
	case !h.Open():
		return refused(ledger.ReservationClosed)
	case h.Account != c.Hold.Account || h.GPUSeconds != c.From:
		return refused(ledger.TermsDiffer)
	}
	next := *h
	idle := l.remaining(*h) == 0 && !l.inUse(h.UID)
	if idle {
		rate := l.rate(c.Hold.Class)
		if rate.Version == 0 {
			return refused(ledger.UnknownClass)
		}
		next.Class, next.RateVersion, next.Rate, next.MaxGPUs = c.Hold.Class, rate.Version, rate.Rate, c.Hold.MaxGPUs
	} else {
		if h.Class != c.Hold.Class {
			return refused(ledger.TermsDiffer)
		}
		next.MaxGPUs = max(next.MaxGPUs, c.Hold.MaxGPUs)
	}
	// The least whole number of GPU-seconds whose price is what was charged and what is asked for.
	wanted := new(big.Int).Mul(big.NewInt(int64(next.Rate)), big.NewInt(c.Hold.GPUSeconds))
	wanted.Add(wanted, &l.chargedOn(*h).Int)
	seconds, rest := new(big.Int).QuoRem(wanted, big.NewInt(int64(next.Rate)), new(big.Int))
	if rest.Sign() > 0 {
		seconds.Add(seconds, big.NewInt(1))
	}
	if seconds.Cmp(big.NewInt(ledger.MaxGPUSeconds)) > 0 {
		return refused(ledger.OutOfRange)
	}
	if !idle && seconds.Cmp(big.NewInt(h.GPUSeconds)) < 0 {
		seconds.SetInt64(h.GPUSeconds)
	}
	amount, fits := price(next.Rate, seconds)
	if !fits {
		return refused(ledger.OutOfRange)
	}
	next.GPUSeconds, next.Amount = seconds.Int64(), amount
	more := l.remaining(next) - l.remaining(*h)
	if more == 0 && next.MaxGPUs == h.MaxGPUs && next.Class == h.Class {
		return ledger.Verdict{RateVersion: h.RateVersion, Replayed: true}
	}
	if more > 0 {
		if refusal := l.limits(h.Payer, h.Account, more); refusal != nil {
			return *refusal
		}
	}
	if !l.try(func() {
		next.taken = slices.Concat(next.taken, l.draw(next.Payer, more))
		*l.hold(c.Hold.UID) = next
	}) {
		return refused(ledger.OutOfRange)
	}
	return ledger.Verdict{RateVersion: next.RateVersion}
}

func (l *Ledger) pauseHold(c ledger.PauseHold) ledger.Verdict {
	h := l.hold(c.UID)
	switch {
	case h == nil:
		return refused(ledger.UnknownReservation)
	case !h.Open():
		return refused(ledger.ReservationClosed)
	case h.GPUSeconds != c.From:
		return refused(ledger.TermsDiffer)
	case l.inUse(c.UID):
		return refused(ledger.ReservationInUse)
	}
	used := new(big.Int).Quo(&l.chargedOn(*h).Int, big.NewInt(int64(h.Rate)))
	if used.Cmp(big.NewInt(h.GPUSeconds)) >= 0 {
		return ledger.Verdict{Replayed: true}
	}
	payer := h.Payer
	if !l.try(func() {
		h := l.hold(c.UID)
		h.GPUSeconds = used.Int64()
		h.Amount, _ = price(h.Rate, used)
		// What it ever took is now what it used of it.
		h.taken = nil
		for _, e := range l.entries {
			if e.Reservation == c.UID {
				h.taken = append(h.taken, e.fromHold...)
			}
		}
	}) {
		return refused(ledger.OutOfRange)
	}
	l.expireReturned(payer)
	return ledger.Verdict{}
}
