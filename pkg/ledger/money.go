package ledger

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Microcredits is an amount of money: 10^-6 credit.
type Microcredits int64

// Credit is one credit. At the default rate it buys one GPU for one second.
const Credit Microcredits = 1_000_000

// Rate is a price in microcredits per GPU-second, 1 to MaxRate.
type Rate int64

// Limits of what the ledger takes. Inside them no sum of two amounts overflows int64, and the price of one GPU for a
// century fits; they are far above any cluster that exists.
const (
	// MaxAmount bounds one grant, hold or overdraft limit, and every balance: 4×10^12 credits, below half of int64.
	MaxAmount Microcredits = 4_000_000_000_000_000_000
	// MaxRate is 1,000 credits per GPU-second.
	MaxRate Rate = 1_000_000_000
	// MaxGPUs bounds the GPUs of one allocation or hold: the largest single clusters have about as many.
	MaxGPUs int64 = 100_000
	// MaxGPUSeconds bounds one hold: MaxGPUs for a little over three years.
	MaxGPUSeconds int64 = 10_000_000_000_000
)

// ErrOutOfRange says that an amount or a price does not fit the ledger's limits.
var ErrOutOfRange = errors.New("out of range")

const creditDecimals = 6

// ParseCredits reads a decimal number of credits with at most six decimals, exactly: "12", "-0.5", "1000000.000001".
// Anything else (exponents, separators, spaces, a sign alone, more decimals) is an error, and so is an amount beyond
// ±MaxAmount (ErrOutOfRange).
func ParseCredits(text string) (Microcredits, error) {
	unsigned, negative := strings.CutPrefix(text, "-")
	whole, fraction, hasPoint := strings.Cut(unsigned, ".")
	if !isDigits(whole) || hasPoint && !isDigits(fraction) {
		return 0, fmt.Errorf("parse credits %q: want a decimal number such as 1200 or 0.25", text)
	}
	if len(fraction) > creditDecimals {
		return 0, fmt.Errorf("parse credits %q: at most %d decimals are kept exactly", text, creditDecimals)
	}
	digits := whole + fraction + strings.Repeat("0", creditDecimals-len(fraction))
	amount, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || Microcredits(amount) > MaxAmount {
		return 0, fmt.Errorf("parse credits %q: %w: at most %s", text, ErrOutOfRange, FormatCredits(MaxAmount))
	}
	if negative {
		amount = -amount
	}
	return Microcredits(amount), nil
}

// FormatCredits writes an amount in credits, exactly, without needless zeros: "12", "-0.5". ParseCredits reads it back.
func FormatCredits(amount Microcredits) string {
	sign, magnitude := "", uint64(amount)
	if amount < 0 {
		sign, magnitude = "-", -magnitude
	}
	whole, fraction := magnitude/uint64(Credit), magnitude%uint64(Credit)
	text := sign + strconv.FormatUint(whole, 10)
	if fraction != 0 {
		text += "." + strings.TrimRight(fmt.Sprintf("%0*d", creditDecimals, fraction), "0")
	}
	return text
}

// DisplayCredits is FormatCredits for people: thousands are separated by commas.
func DisplayCredits(amount Microcredits) string {
	text := FormatCredits(amount)
	unsigned, negative := strings.CutPrefix(text, "-")
	whole, fraction, hasPoint := strings.Cut(unsigned, ".")
	var out strings.Builder
	if negative {
		out.WriteByte('-')
	}
	for i, digit := range whole {
		if i > 0 && (len(whole)-i)%3 == 0 {
			out.WriteByte(',')
		}
		out.WriteRune(digit)
	}
	if hasPoint {
		out.WriteByte('.')
		out.WriteString(fraction)
	}
	return out.String()
}

func isDigits(text string) bool {
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return false
		}
	}
	return text != ""
}

// addWithin adds two amounts and reports whether the sum stays within ±MaxAmount. Both arguments must be within it.
func addWithin(a, b Microcredits) (Microcredits, bool) {
	sum := a + b // cannot wrap: both are below half of int64
	return sum, sum <= MaxAmount && sum >= -MaxAmount
}
