package victims_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/gpubank/gpubank/pkg/plugins/checkpointpreemption/victims"
)

// exhaustive goes over all sets of units.
func exhaustive(p victims.Problem) (best victims.Choice, found bool) {
	order := make([]int, len(p.Units))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		if p.Units[a].UID < p.Units[b].UID {
			return -1
		}
		return 1
	})
	for set := range 1 << len(order) {
		var units []int
		for i, index := range order {
			if set&(1<<i) != 0 {
				units = append(units, index)
			}
		}
		cost, possible := costOf(p, units)
		if !possible {
			continue
		}
		if !found || cost.Compare(best.Cost) < 0 || cost.Compare(best.Cost) == 0 && lower(p, units, best.Units) {
			best, found = victims.Choice{Cost: cost, Units: units}, true
		}
	}
	return best, found
}

// costOf is the cost of a set by the definition, and whether it may be taken and is enough.
func costOf(p victims.Problem, units []int) (victims.Cost, bool) {
	cost := victims.Cost{Priority: victims.NoPriority}
	freed := make([]int64, len(p.Need))
	evicted := make([]int64, len(p.Budgets))
	taken := make([]int64, len(p.Shares))
	for _, index := range units {
		u := p.Units[index]
		for i := range freed {
			freed[i] += u.Frees[i]
		}
		cost.GPUs += u.Frees[victims.GPUs]
		cost.Units++
		if u.Stopping {
			continue
		}
		cost.Priority = max(cost.Priority, int64(u.Priority))
		cost.Lost += u.Lost
		for _, a := range u.Evicts {
			evicted[a.Index] += a.N
		}
		for _, a := range u.Takes {
			taken[a.Index] += a.N
		}
	}
	for i, need := range p.Need {
		if freed[i] < need {
			return cost, false
		}
	}
	for i, allowed := range p.Budgets {
		cost.Violations += max(0, evicted[i]-max(0, allowed))
	}
	for i, share := range p.Shares {
		beyond := max(0, taken[i]-share.Borrowed)
		if beyond > 0 && !share.Own {
			return cost, false
		}
		cost.Guaranteed += beyond
	}
	return cost, true
}

// lower compares two sets of the same size, each in the order of UIDs.
func lower(p victims.Problem, a, b []int) bool {
	for i := range a {
		if p.Units[a[i]].UID != p.Units[b[i]].UID {
			return p.Units[a[i]].UID < p.Units[b[i]].UID
		}
	}
	return false
}

// problems are small enough for exhaustive, with few different values, so that every part of the order comes to decide.
func problems(most int) *rapid.Generator[victims.Problem] {
	return rapid.Custom(func(t *rapid.T) victims.Problem {
		resources := rapid.IntRange(1, 4).Draw(t, "resources")
		p := victims.Problem{Need: make([]int64, resources)}
		for i := range p.Need {
			p.Need[i] = rapid.Int64Range(0, 8).Draw(t, "need")
		}
		for range rapid.IntRange(0, 3).Draw(t, "budgets") {
			p.Budgets = append(p.Budgets, rapid.Int64Range(-1, 3).Draw(t, "allowed"))
		}
		for i := range rapid.IntRange(0, 3).Draw(t, "shares") {
			p.Shares = append(p.Shares, victims.Share{Borrowed: rapid.Int64Range(0, 8).Draw(t, "borrowed"), Own: i == 0 && rapid.Bool().Draw(t, "own")})
		}
		amounts := func(of int, most int64, what string) (list []victims.Amount) {
			for i := range of {
				if n := rapid.Int64Range(0, most).Draw(t, what); n > 0 {
					list = append(list, victims.Amount{Index: i, N: n})
				}
			}
			return list
		}
		uids := rapid.Permutation([]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}).Draw(t, "uids")
		for i := range rapid.IntRange(0, most).Draw(t, "units") {
			u := victims.Unit{
				UID: fmt.Sprintf("%02d", uids[i]), Priority: rapid.Int32Range(-1, 2).Draw(t, "priority"),
				Lost: rapid.Int64Range(0, 3).Draw(t, "lost") * rapid.SampledFrom([]int64{1, 1000}).Draw(t, "scale"), Frees: make([]int64, resources),
				Evicts: amounts(len(p.Budgets), 2, "evicts"), Takes: amounts(len(p.Shares), 4, "takes"),
				Stopping: rapid.IntRange(0, 5).Draw(t, "stopping") == 0,
			}
			for r := range u.Frees {
				u.Frees[r] = rapid.Int64Range(0, 4).Draw(t, "frees")
			}
			p.Units = append(p.Units, u)
		}
		return p
	})
}

func TestChooseIsExhaustiveSearch(t *testing.T) {
	found := 0
	rapid.Check(t, func(t *rapid.T) {
		p := problems(10).Draw(t, "problem")
		want, possible := exhaustive(p)
		got, chosen := victims.Choose(p)
		if possible != chosen {
			t.Fatalf("there is a choice: %v; found: %v\n%+v", possible, chosen, p)
		}
		if !chosen {
			return
		}
		found++
		if got.Inexact || got.Cost != want.Cost || !slices.Equal(got.Units, want.Units) {
			t.Fatalf("chose %+v, best is %+v\n%+v", got, want, p)
		}
	})
	if found == 0 {
		t.Error("no random node had a choice")
	}
}

// Of says of every set what the definition says, and Ordered lists those that are enough, best first.
func TestOrderedIsAllSets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := problems(8).Draw(t, "problem")
		possible := 0
		for set := 1; set < 1<<len(p.Units); set++ {
			var units []int
			for i := range p.Units {
				if set&(1<<i) != 0 {
					units = append(units, i)
				}
			}
			want, allowed := costOf(p, units)
			got, enough := victims.Of(p, units)
			if enough != allowed || allowed && got.Cost != want {
				t.Fatalf("%v: %+v %v, want %+v %v\n%+v", units, got.Cost, enough, want, allowed, p)
			}
			if allowed {
				possible++
			}
		}
		choices := victims.Ordered(p, 1<<len(p.Units))
		if len(choices) != possible || !slices.IsSortedFunc(choices, func(a, b victims.Choice) int { return a.Cost.Compare(b.Cost) }) {
			t.Fatalf("%d choices, want %d\n%+v", len(choices), possible, p)
		}
		best, found := exhaustive(p)
		if len(choices) > 0 && found && len(best.Units) > 0 && choices[0].Cost != best.Cost {
			t.Fatalf("the first is %+v, want %+v", choices[0], best)
		}
	})
}

func unit(uid string, priority int32, gpus, lost int64) victims.Unit {
	return victims.Unit{UID: uid, Priority: priority, Lost: lost, Frees: []int64{gpus}}
}

// The order, one part at a time: of two choices that are equal in what comes before, the one that is better in this.
func TestOrder(t *testing.T) {
	with := func(u victims.Unit, edit func(*victims.Unit)) victims.Unit { edit(&u); return u }
	one := []victims.Amount{{Index: 0, N: 1}}
	for _, c := range []struct {
		name    string
		problem victims.Problem
		want    []string
	}{
		{"C20: a budget before everything else", victims.Problem{
			Need: []int64{1}, Budgets: []int64{0},
			Units: []victims.Unit{with(unit("a", 0, 1, 0), func(u *victims.Unit) { u.Evicts = one }), unit("b", 5, 8, 1_000_000)},
		}, []string{"b"}},
		{"a budget that allows one more is not violated by one", victims.Problem{
			Need: []int64{1}, Budgets: []int64{1},
			Units: []victims.Unit{
				with(unit("a", 0, 1, 0), func(u *victims.Unit) { u.Evicts = one }),
				with(unit("b", 0, 1, 10), func(u *victims.Unit) { u.Evicts = one }),
			},
		}, []string{"a"}},
		{"borrowed before guaranteed", victims.Problem{
			Need: []int64{1}, Shares: []victims.Share{{Borrowed: 0, Own: true}},
			Units: []victims.Unit{with(unit("a", 0, 1, 0), func(u *victims.Unit) { u.Takes = one }), unit("b", 5, 8, 1_000_000)},
		}, []string{"b"}},
		{"never another's guarantee, even if nothing else is enough", victims.Problem{
			Need: []int64{2}, Shares: []victims.Share{{Borrowed: 1}},
			Units: []victims.Unit{
				with(unit("a", 0, 1, 0), func(u *victims.Unit) { u.Takes = one }),
				with(unit("b", 0, 1, 0), func(u *victims.Unit) { u.Takes = one }),
			},
		}, nil},
		{"lowest priority before least lost", victims.Problem{
			Need: []int64{2}, Units: []victims.Unit{unit("a", 1, 2, 0), unit("b", 0, 1, 500), unit("c", 0, 1, 500)},
		}, []string{"b", "c"}},
		{"least lost before fewest freed", victims.Problem{
			Need: []int64{1}, Units: []victims.Unit{unit("a", 0, 1, 10), unit("b", 0, 8, 9)},
		}, []string{"b"}},
		{"fewest freed before fewest stopped", victims.Problem{
			Need: []int64{2}, Units: []victims.Unit{unit("a", 0, 3, 10), unit("b", 0, 1, 5), unit("c", 0, 1, 5)},
		}, []string{"b", "c"}},
		{"fewest stopped", victims.Problem{
			Need: []int64{2}, Units: []victims.Unit{unit("a", 0, 1, 5), unit("b", 0, 1, 5), unit("c", 0, 2, 10)},
		}, []string{"c"}},
		{"lowest UIDs", victims.Problem{
			Need: []int64{2}, Units: []victims.Unit{unit("c", 0, 1, 5), unit("b", 0, 1, 5), unit("a", 0, 1, 5)},
		}, []string{"a", "b"}},
		{"nobody is stopped while waiting is enough", victims.Problem{
			Need: []int64{4}, Units: []victims.Unit{unit("a", 0, 4, 0), with(unit("b", 9, 4, 1000), func(u *victims.Unit) { u.Stopping = true })},
		}, []string{"b"}},
		{"cheapest sufficient, where taking the cheapest one by one is not", victims.Problem{
			// Greedy takes a (1) and then has to take c as well.
			Need: []int64{4}, Units: []victims.Unit{unit("a", 0, 1, 1), unit("b", 0, 4, 10), unit("c", 0, 3, 12)},
		}, []string{"b"}},
		{"C18: not enough, nobody", victims.Problem{
			Need: []int64{8}, Units: []victims.Unit{unit("a", 0, 4, 1), unit("b", 0, 3, 1)},
		}, nil},
		{"enough GPUs, not enough memory", victims.Problem{
			Need: []int64{1, 5}, Units: []victims.Unit{
				{UID: "a", Lost: 1, Frees: []int64{1, 2}}, {UID: "b", Lost: 9, Frees: []int64{0, 3}}, {UID: "c", Lost: 20, Frees: []int64{1, 5}},
			},
		}, []string{"a", "b"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			choice, _ := victims.Choose(c.problem)
			var got []string
			for _, index := range choice.Units {
				got = append(got, c.problem.Units[index].UID)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("chose %v at %+v, want %v", got, choice.Cost, c.want)
			}
		})
	}
}

// A node with more than the search can be exact about still gets a choice that is enough, and says so.
func TestLargeNode(t *testing.T) {
	p := victims.Problem{Need: []int64{100}}
	for i := range 400 {
		p.Units = append(p.Units, unit(fmt.Sprintf("%03d", i), 0, 1, int64(1+i%7)))
	}
	choice, found := victims.Choose(p)
	if !found || !choice.Inexact || choice.Cost.GPUs != 100 {
		t.Errorf("%v %+v", found, choice)
	}
}

func BenchmarkChoose(b *testing.B) {
	p := victims.Problem{Need: []int64{4}}
	for i := range 8 {
		p.Units = append(p.Units, unit(fmt.Sprintf("%03d", i), 0, 1, int64(100+i*37%11)))
	}
	b.ReportAllocs()
	for b.Loop() {
		victims.Choose(p)
	}
}
