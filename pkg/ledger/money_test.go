package ledger

import (
	"errors"
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseCredits(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Microcredits{
		"0": 0, "-0": 0, "1": Credit, "0.5": Credit / 2, "-0.5": -Credit / 2, "10000": 10_000 * Credit,
		"0.000001": 1, "00012.50": 12*Credit + Credit/2, "4000000000000": MaxAmount, "-4000000000000": -MaxAmount,
	} {
		got, err := ParseCredits(text)
		if err != nil || got != want {
			t.Errorf("ParseCredits(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "-", ".", ".5", "5.", "+1", "1e3", "1,000", " 1", "1 ", "0.0000001", "--1", "1.2.3", "NaN", "Inf", "0x10", "１",
	} {
		if got, err := ParseCredits(text); err == nil {
			t.Errorf("ParseCredits(%q) = %d; want an error", text, got)
		}
	}
	for _, text := range []string{"4000000000000.000001", "9223372036854.775808", "99999999999999999999999", "-4000000000001"} {
		if got, err := ParseCredits(text); !errors.Is(err, ErrOutOfRange) {
			t.Errorf("ParseCredits(%q) = %d, %v; want ErrOutOfRange", text, got, err)
		}
	}
}

func TestCreditsRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		amount := Microcredits(rapid.Int64Range(-int64(MaxAmount), int64(MaxAmount)).Draw(t, "amount"))
		back, err := ParseCredits(FormatCredits(amount))
		if err != nil || back != amount {
			t.Fatalf("%d formats as %q and parses as %d, %v", amount, FormatCredits(amount), back, err)
		}
	})
	if got := FormatCredits(math.MinInt64); got != "-9223372036854.775808" {
		t.Errorf("FormatCredits(MinInt64) = %q", got)
	}
	for amount, want := range map[Microcredits]string{
		0: "0", 999 * Credit: "999", 1_000 * Credit: "1,000", -1_234_567*Credit - 250_000: "-1,234,567.25",
	} {
		if got := DisplayCredits(amount); got != want {
			t.Errorf("DisplayCredits(%d) = %q, want %q", amount, got, want)
		}
	}
}

func TestInstant(t *testing.T) {
	t.Parallel()
	zone := time.FixedZone("east", 2*3600)
	got := Instant(time.Date(2026, 3, 29, 4, 0, 0, 1_999, zone))
	if want := time.Date(2026, 3, 29, 2, 0, 0, 1_000, time.UTC); got != want {
		t.Errorf("Instant = %v, want %v", got, want)
	}
	if !Instant(time.Time{}).IsZero() {
		t.Error("the zero time must stay zero")
	}
}

// Price against arbitrary precision, over the whole range of its arguments.
func TestPriceIsExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rate := Rate(rapid.Int64Range(0, int64(MaxRate)).Draw(t, "rate"))
		gpus := rapid.Int64Range(0, MaxGPUs).Draw(t, "gpus")
		d := time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "d"))
		want := new(big.Int).Mul(big.NewInt(int64(rate)), big.NewInt(gpus))
		want.Mul(want, big.NewInt(d.Microseconds()))
		want.Div(want, big.NewInt(1_000_000))
		got, err := Price(rate, gpus, d)
		if want.Cmp(big.NewInt(int64(MaxAmount))) > 0 {
			if !errors.Is(err, ErrOutOfRange) {
				t.Fatalf("Price = %d, %v; want ErrOutOfRange for %s", got, err, want)
			}
		} else if err != nil || big.NewInt(int64(got)).Cmp(want) != 0 {
			t.Fatalf("Price = %d, %v; want %s", got, err, want)
		}
	})
}

// I4: however held time is cut, the pieces add up to the whole.
func TestChargesAddUpHoweverTimeIsCut(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		rate := Rate(rapid.Int64Range(1, int64(MaxRate)).Draw(t, "rate"))
		gpus := rapid.Int64Range(1, 64).Draw(t, "gpus")
		at, sum := start, Microcredits(0)
		for _, cut := range rapid.SliceOfN(rapid.Int64Range(0, 3_000_000_000), 1, 30).Draw(t, "cuts") {
			next := at.Add(time.Duration(cut) * time.Microsecond)
			charge, err := ChargeBetween(rate, gpus, start, at, next)
			if err != nil || charge < 0 {
				t.Fatalf("ChargeBetween = %d, %v", charge, err)
			}
			at, sum = next, sum+charge
		}
		whole, err := Price(rate, gpus, at.Sub(start))
		if err != nil || whole != sum {
			t.Fatalf("pieces add up to %d, the whole is %d (%v)", sum, whole, err)
		}
	})
}

// L18: held time is elapsed time; that clocks are set forward in between changes nothing.
func TestL18ChargeAcrossDaylightSaving(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skipf("no time zone data on this machine: %v", err)
	}
	from := time.Date(2026, 3, 29, 1, 0, 0, 0, berlin)
	to := time.Date(2026, 3, 29, 4, 0, 0, 0, berlin) // two hours later: 02:00 to 03:00 does not exist
	charge, err := ChargeBetween(1_000_000, 1, Instant(from), Instant(from), Instant(to))
	if err != nil || charge != 7_200*Credit {
		t.Errorf("charge = %s, %v; want 7200", FormatCredits(charge), err)
	}
}

func TestPriceOfAbsurdArguments(t *testing.T) {
	t.Parallel()
	if got, err := Price(math.MaxInt64, math.MaxInt64, math.MaxInt64); !errors.Is(err, ErrOutOfRange) {
		t.Errorf("Price = %d, %v; want ErrOutOfRange", got, err)
	}
	epoch := time.Unix(0, 0).UTC()
	if got, err := ChargeBetween(1, 1, epoch, epoch, epoch.AddDate(300, 0, 0)); !errors.Is(err, ErrOutOfRange) {
		t.Errorf("ChargeBetween over 300 years = %d, %v; want ErrOutOfRange", got, err)
	}
}

func TestHoldPrice(t *testing.T) {
	t.Parallel()
	if got, err := HoldPrice(1_000_000, 2_400); err != nil || got != 2_400*Credit {
		t.Errorf("HoldPrice = %d, %v", got, err)
	}
	for _, seconds := range []int64{MaxGPUSeconds, math.MaxInt64} {
		if got, err := HoldPrice(MaxRate, seconds); !errors.Is(err, ErrOutOfRange) {
			t.Errorf("HoldPrice(MaxRate, %d) = %d, %v; want ErrOutOfRange", seconds, got, err)
		}
	}
}
