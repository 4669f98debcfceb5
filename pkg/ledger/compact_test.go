package ledger

import (
	"math/rand/v2"
	"testing"
	"time"
)

// Whatever intervals an allocation has, what they are compacted to says the same of it: the rows are the time that each source vouches
// for and cost the same, and what they were comes back, interval by interval. Compacting it again changes nothing.
func TestCompactTimeLosesNothing(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	start := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	for range 3_000 {
		a := Allocation{
			PodUID: "pod", State: AllocationEnded, Rate: Rate(1 + random.Int64N(5_000_000)), GPUs: 1 + random.Int64N(8),
			StartedAt: start.Add(time.Duration(random.Int64N(100_000_000)) * time.Microsecond),
		}
		var pieces []Interval
		for at := a.StartedAt; len(pieces) < random.IntN(60); {
			end := at.Truncate(time.Minute).Add(time.Minute)
			if random.IntN(10) == 0 {
				end = at.Add(time.Duration(1+random.Int64N(90_000_000)) * time.Microsecond)
			}
			source := SourceAgent
			if random.IntN(8) == 0 {
				source = SourceDerived
			}
			pieces = append(pieces, Interval{PodUID: "pod", Start: at, End: end, Source: source, Charge: mustCharge(a, span{at, end}), ReceivedAt: start.Add(48 * time.Hour)})
			at = end
		}
		a.EndedAt = a.StartedAt
		for _, piece := range pieces {
			a.EndedAt, a.Charged = piece.End, a.Charged+piece.Charge
		}
		rows, whole, err := CompactTime(a, pieces)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		again, err := whole.Expand(a)
		if err != nil || !sameIntervals(again, pieces) || whole.Pieces() != int64(len(pieces)) {
			t.Fatalf("seed %d: %v became %v, %v", seed, pieces, again, err)
		}
		if want := slowlyMerged(pieces); !sameIntervals(rows, want) {
			t.Fatalf("seed %d: rows %v, want %v", seed, rows, want)
		}
		if same, _, err := CompactTime(a, rows); err != nil || !sameIntervals(same, rows) {
			t.Fatalf("seed %d: compacted twice %v, %v", seed, same, err)
		}
	}
}

// slowlyMerged joins two neighbours at a time until none can be joined.
func slowlyMerged(pieces []Interval) []Interval {
	for i := range len(pieces) - 1 {
		one, next := pieces[i], pieces[i+1]
		if one.Source == next.Source && one.End.Equal(next.Start) {
			joined := one
			joined.End, joined.Charge = next.End, one.Charge+next.Charge
			return slowlyMerged(append(append(append([]Interval(nil), pieces[:i]...), joined), pieces[i+2:]...))
		}
	}
	return pieces
}

func sameIntervals(a, b []Interval) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// What does not add up is not compacted.
func TestCompactTimeRefusesWhatIsUnsound(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	sound := func() (Allocation, []Interval) {
		a := Allocation{PodUID: "pod", State: AllocationEnded, Rate: 1_000, GPUs: 2, StartedAt: start, EndedAt: at(30), Charged: 60_000}
		return a, []Interval{
			{PodUID: "pod", Start: start, End: at(10), Source: SourceAgent, Charge: 20_000}, {PodUID: "pod", Start: at(10), End: at(30), Source: SourceAgent, Charge: 40_000},
		}
	}
	a, pieces := sound()
	if rows, _, err := CompactTime(a, pieces); err != nil || len(rows) != 1 {
		t.Fatalf("%v, %v", rows, err)
	}
	for what, spoil := range map[string]func(*Allocation, []Interval) []Interval{
		"still open":            func(a *Allocation, p []Interval) []Interval { a.State = AllocationMetering; return p },
		"a price":               func(_ *Allocation, p []Interval) []Interval { p[0].Charge++; return p },
		"a sum":                 func(a *Allocation, p []Interval) []Interval { a.Charged--; return p },
		"a gap":                 func(_ *Allocation, p []Interval) []Interval { p[1].Start = at(11); return p },
		"an overlap":            func(_ *Allocation, p []Interval) []Interval { p[1].Start = at(9); return p },
		"an end that is missed": func(a *Allocation, p []Interval) []Interval { a.EndedAt = at(31); return p },
		"a missing row":         func(_ *Allocation, p []Interval) []Interval { return p[:1] },
	} {
		a, pieces := sound()
		if rows, _, err := CompactTime(a, spoil(&a, pieces)); err == nil {
			t.Errorf("%s: compacted to %v", what, rows)
		}
	}
}
