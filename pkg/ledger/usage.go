package ledger

import "time"

// AverageUse is how much of a class an account's own pods have used lately: the exponential average of the GPUs that they held, in which
// what was held one half-life ago counts half. It weighs turns, never money, so it is a float.
type AverageUse struct {
	Account, Class string
	HalfLife       time.Duration
	GPUs           float64
}
