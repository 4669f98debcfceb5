package ledger

import (
	"fmt"
	"math"
	"math/bits"
	"time"
)

const microsecondsPerSecond = 1_000_000

// Instant is t as the ledger keeps it: UTC, truncated to the microsecond, the finest that PostgreSQL stores.
func Instant(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Microsecond)
}

// Price is what gpus GPUs cost for d: floor(rate × gpus × µs ÷ 10^6), in exact integer arithmetic. Rounding is down, in
// favour of the account. A negative duration, rate or number of GPUs is a caller's bug and panics; a price that does
// not fit MaxAmount is ErrOutOfRange.
func Price(rate Rate, gpus int64, d time.Duration) (Microcredits, error) {
	if rate < 0 || gpus < 0 || d < 0 {
		panic(fmt.Sprintf("ledger: price of %d GPUs at rate %d for %s: nothing here may be negative", gpus, rate, d))
	}
	perSecondHigh, perSecond := bits.Mul64(uint64(rate), uint64(gpus))
	if perSecondHigh != 0 {
		return 0, priceOutOfRange(rate, gpus, d)
	}
	high, low := bits.Mul64(perSecond, uint64(d.Microseconds()))
	if high >= microsecondsPerSecond { // the quotient would not fit 64 bits
		return 0, priceOutOfRange(rate, gpus, d)
	}
	price, _ := bits.Div64(high, low, microsecondsPerSecond)
	if price > uint64(MaxAmount) {
		return 0, priceOutOfRange(rate, gpus, d)
	}
	return Microcredits(price), nil
}

// HoldPrice is rate × gpuSeconds, exactly; ErrOutOfRange when it does not fit MaxAmount.
func HoldPrice(rate Rate, gpuSeconds int64) (Microcredits, error) {
	if rate < 0 || gpuSeconds < 0 {
		panic(fmt.Sprintf("ledger: price of %d GPU-seconds at rate %d: nothing here may be negative", gpuSeconds, rate))
	}
	high, low := bits.Mul64(uint64(rate), uint64(gpuSeconds))
	if high != 0 || low > uint64(MaxAmount) {
		return 0, fmt.Errorf("price of %d GPU-seconds at %d microcredits each: %w", gpuSeconds, rate, ErrOutOfRange)
	}
	return Microcredits(low), nil
}

// ChargeBetween is the charge for [start, end) of an allocation that started at allocStart (I4): the price up to end
// minus the price up to start. Charges of adjacent intervals therefore add up to the charge of the whole, however it is
// cut. It panics unless allocStart ≤ start ≤ end.
func ChargeBetween(rate Rate, gpus int64, allocStart, start, end time.Time) (Microcredits, error) {
	if start.Before(allocStart) || end.Before(start) {
		panic(fmt.Sprintf("ledger: charge between %s and %s of an allocation that started at %s", start, end, allocStart))
	}
	if end.Sub(allocStart) == math.MaxInt64 { // Sub saturates at 292 years
		return 0, priceOutOfRange(rate, gpus, math.MaxInt64)
	}
	upToEnd, err := Price(rate, gpus, end.Sub(allocStart))
	if err != nil {
		return 0, err
	}
	upToStart, err := Price(rate, gpus, start.Sub(allocStart))
	if err != nil {
		return 0, err
	}
	return upToEnd - upToStart, nil
}

func priceOutOfRange(rate Rate, gpus int64, d time.Duration) error {
	return fmt.Errorf("price of %d GPUs at %d microcredits per GPU-second for %s: %w", gpus, rate, d, ErrOutOfRange)
}
