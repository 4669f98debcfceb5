package turn

import (
	"math"
	"time"
)

// use is what an account, and everything below it, holds of one class.
type use struct {
	// inUse is the number of GPUs held now.
	inUse int64
	// average is the exponential average of held GPUs at the latest tick: what comparisons use.
	average float64
	// base is the average, with which the next tick's is computed: corrected for changes of inUse since the latest.
	base float64
}

// fade is how much of an average is left after d: 2^(-d/halfLife).
func fade(d, halfLife time.Duration) float64 {
	return math.Exp2(-float64(d) / float64(halfLife))
}

// change adds held GPUs, some time after the latest tick. The next tick takes all of inUse for held since the latest, so what that
// is too much is taken off beforehand:
//
//	base·f(T) + n·(1 − f(T−t)) = (base + n·(1 − 1/f(t)))·f(T) + n·(1 − f(T)),  f(x) = 2^(−x/h)
func (u *use) change(gpus int64, sinceTick, halfLife time.Duration) {
	u.inUse += gpus
	u.base += float64(gpus) * (1 - 1/fade(sinceTick, halfLife))
}

// advance brings the average to a tick, d after the latest one.
func (u *use) advance(d, halfLife time.Duration) {
	left := fade(d, halfLife)
	u.base = u.base*left + float64(u.inUse)*(1-left)
	u.average = u.base
}

// Past is what an account's own pods have used: the exponential average, with HalfLife, of the GPUs of Class that they held.
type Past struct {
	Account, Class string
	HalfLife       time.Duration
	Average        float64
}

type usageKey struct {
	account, class string
	halfLife       time.Duration
}

// holding is a pod that holds GPUs.
type holding struct {
	account, class, floor string
	gpus                  int64
}
