package ledger_test

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/ledger/ledgertest"
)

// FuzzDecide makes a history of any bytes, with amounts at the end of the range: no panic, every audit holds after every batch,
// and the slow ledger answers the same.
func FuzzDecide(f *testing.F) {
	for _, seed := range []string{"", "\x01", strings.Repeat("\x00\x01\x02\x03\x04\x05\x06\x07", 300), strings.Repeat("\xff\x80\x11\x05", 800)} {
		f.Add([]byte(seed))
	}
	decide := rapid.MakeFuzz(func(t *rapid.T) {
		history := ledgertest.VastHistory("x-").Draw(t, "history")
		m := newMemory()
		for _, batch := range history {
			m.Decide(batch.Now, batch.Commands...)
			if found := m.Audit(); len(found) > 0 {
				t.Fatalf("after %#v: %v", batch.Commands, found)
			}
		}
		compareWithSlow(t, history)
	})
	f.Fuzz(func(t *testing.T, input []byte) { decide(t, endless(input)) })
}

// endless is the input and then what a random source makes of it, enough for the longest history: one that is cut short tells
// nothing.
func endless(input []byte) []byte {
	rest := make([]byte, 1<<17)
	_, _ = rand.NewChaCha8(sha256.Sum256(input)).Read(rest) // never fails
	return append(slices.Clone(input), rest...)
}

// bigPrice is floor(rate × gpus × µs ÷ 10^6).
func bigPrice(rate ledger.Rate, gpus, microseconds int64) *big.Int {
	price := big.NewInt(int64(rate))
	price.Mul(price, big.NewInt(gpus))
	price.Mul(price, big.NewInt(microseconds))
	return price.Div(price, big.NewInt(1_000_000))
}

// matches: the right amount, or ErrOutOfRange exactly where no amount can say it; never a wrapped one.
func matches(t *testing.T, got ledger.Microcredits, err error, want *big.Int, fits bool) {
	t.Helper()
	switch {
	case fits && (err != nil || want.Cmp(big.NewInt(int64(got))) != 0):
		t.Fatalf("%d, %v; want %s", got, err, want)
	case !fits && (!errors.Is(err, ledger.ErrOutOfRange) || got != 0):
		t.Fatalf("%d, %v; want ErrOutOfRange for %s", got, err, want)
	}
}

func fitsAmount(n *big.Int) bool { return n.CmpAbs(big.NewInt(int64(ledger.MaxAmount))) <= 0 }

func positive(n int64) int64 { return max(n, -(n + 1)) }

// FuzzPrice is any price that int64 can ask for.
func FuzzPrice(f *testing.F) {
	for _, seed := range [][3]int64{{1, 1, 1}, {1_000_000, 8, 3_600_000_000_000}, {math.MaxInt64, math.MaxInt64, math.MaxInt64}, {math.MaxInt64, 1, 1_000_000_000}, {1_000_000_000, 100_000, 40_000_000_000_000}, {4_000_000_000_000_000_000, 1, 1_000_000_000}, {0, math.MaxInt64, math.MaxInt64}} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, rate, gpus, nanoseconds int64) {
		rate, gpus, nanoseconds = positive(rate), positive(gpus), positive(nanoseconds)
		got, err := ledger.Price(ledger.Rate(rate), gpus, time.Duration(nanoseconds))
		want := bigPrice(ledger.Rate(rate), gpus, nanoseconds/1000)
		matches(t, got, err, want, fitsAmount(want))

		got, err = ledger.HoldPrice(ledger.Rate(rate), gpus)
		want = new(big.Int).Mul(big.NewInt(rate), big.NewInt(gpus))
		matches(t, got, err, want, fitsAmount(want))
	})
}

// FuzzChargeBetween is I4 at the edges: the charge of any part is the exact difference, and two parts are the whole.
func FuzzChargeBetween(f *testing.F) {
	for _, seed := range [][5]int64{{1, 1, 0, 1, 1}, {1_000_001, 3, 7, 999_999, 1}, {math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64}, {1_000_000_000, 100_000, 0, 40_000_000_000, 1}, {1, 1, 9_223_372_036_854_775, 1, 0}} {
		f.Add(seed[0], seed[1], seed[2], seed[3], seed[4])
	}
	began := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, rate, gpus, before, first, second int64) {
		const third = math.MaxInt64 / 3 / 1000 // in microseconds, so that three of them are a Duration
		rate, gpus = positive(rate), positive(gpus)
		before, first, second = positive(before)%third, positive(first)%third, positive(second)%third
		at := func(microseconds int64) time.Time { return began.Add(time.Duration(microseconds) * time.Microsecond) }
		upTo := func(microseconds int64) *big.Int { return bigPrice(ledger.Rate(rate), gpus, microseconds) }
		between := func(from, to int64) (ledger.Microcredits, error) {
			got, err := ledger.ChargeBetween(ledger.Rate(rate), gpus, began, at(from), at(to))
			matches(t, got, err, new(big.Int).Sub(upTo(to), upTo(from)), fitsAmount(upTo(to)))
			return got, err
		}
		one, oneErr := between(before, before+first)
		other, otherErr := between(before+first, before+first+second)
		whole, wholeErr := between(before, before+first+second)
		if errors.Join(oneErr, otherErr, wholeErr) == nil && one+other != whole {
			t.Fatalf("%d and %d are %d", one, other, whole)
		}
	})
}

// FuzzParseCredits: what is read is what is written, exactly, and everything else is an error.
func FuzzParseCredits(f *testing.F) {
	for _, seed := range []string{"0", "-0", "12", "-0.5", "1000000.000001", "4000000000000", "4000000000000.000001", "-4000000000000", "9223372036854.775808", "1e3", "+1", ".5", "5.", "１", "00012.50", "0.0000001"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ledger.ParseCredits(text)
		if err != nil {
			if got != 0 {
				t.Fatalf("%q is %d and %v", text, got, err)
			}
			return
		}
		want, isNumber := new(big.Rat).SetString(text)
		if !isNumber || want.Mul(want, big.NewRat(1_000_000, 1)).Cmp(new(big.Rat).SetInt64(int64(got))) != 0 {
			t.Fatalf("%q is read as %d microcredits", text, got)
		}
		again, err := ledger.ParseCredits(ledger.FormatCredits(got))
		if err != nil || again != got {
			t.Fatalf("%q: %d is written as %q and read as %d, %v", text, got, ledger.FormatCredits(got), again, err)
		}
		if shown := strings.ReplaceAll(ledger.DisplayCredits(got), ",", ""); shown != ledger.FormatCredits(got) {
			t.Fatalf("%d is shown as %q", got, ledger.DisplayCredits(got))
		}
	})
}

// FuzzGPULimits: limits that are read are in their one form, and mean what they say.
func FuzzGPULimits(f *testing.F) {
	for _, seed := range []string{"", "a100=8+4", "a100=8+4 h100=16+0", "h100=1+0 a100=1+0", "a=1+1 a=1+1", "a=-1+0", "a=+1+0", "=1+0", "a=1", "a= 1+0", "a=99999999999999999999+0", "a=b=1+0"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		limits, err := ledger.GPULimits(text).Parse()
		if err != nil {
			return
		}
		classes := make(map[string]bool)
		for _, l := range limits {
			if l.Class == "" || classes[l.Class] || l.Guaranteed < 0 || l.Borrowable < 0 || l.Guaranteed > ledger.MaxGPUs || l.Borrowable > ledger.MaxGPUs {
				t.Fatalf("%q is read as %+v", text, limits)
			}
			classes[l.Class] = true
		}
		if again := ledger.FormatGPULimits(limits); string(again) != text {
			t.Fatalf("%q is written as %q", text, again)
		}
	})
}

// FuzzPolicyJSON: a policy that can be read is written so that it is read back the same, and a sound one stays sound. Whatever
// it says, Check answers and does not panic.
func FuzzPolicyJSON(f *testing.F) {
	for _, p := range []ledger.Policy{
		{},
		{OverdraftLimit: ledger.MaxAmount, DefaultMaxRuntimeSeconds: 1, Funding: ledger.FundingAncestor, RunningJobs: 1, GPUs: "a100=8+4"},
		{Spending: ledger.SpendingLimit{Amount: 1, Period: ledger.PeriodQuarter}, HoldAt: ledger.HoldAtPlacement},
		{Overrun: ledger.Overrun{Action: ledger.OverrunRenew, LeadSeconds: 60, StepSeconds: 600}, Refunds: ledger.RefundPolicy{FailedPercent: 100, DeviceFault: true}},
		{Refill: ledger.Refill{Amount: 1, PeriodSeconds: 1, Cap: 1000}},
	} {
		text, err := json.Marshal(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		var p, again ledger.Policy
		if json.Unmarshal([]byte(text), &p) != nil {
			return
		}
		check := func(p ledger.Policy) *ledger.Refusal {
			return ledger.Check(ledger.SetAccount{Key: "k", Account: "a", Policy: p})
		}
		refusal := check(p)
		if refusal != nil && refusal.Code != ledger.Invalid && refusal.Code != ledger.OutOfRange {
			t.Fatalf("%s: %s", text, refusal)
		}
		written, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(written, &again); err != nil || refusal == nil && again != p {
			t.Fatalf("%s: %v: - read, + read again: %s", text, err, cmp.Diff(p, again))
		}
		if refusal == nil && check(again) != nil {
			t.Fatalf("%s is sound and %s is not: %s", text, written, check(again))
		}
	})
}
