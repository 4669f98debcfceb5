package auditor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gpubank/gpubank/pkg/ledger"
)

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

// agreeing are two pods on a node of four GPUs about which everyone says the same.
func agreeing() sides {
	s := sides{pods: map[string]podSide{}, nodes: map[string]nodeSide{"n1": {gpus: map[string]int64{"h100": 4}}}, ended: map[string]ledger.Allocation{}}
	for i, uid := range []string{"one", "two"} {
		gpus := []string{fmt.Sprintf("GPU-%d", 2*i), fmt.Sprintf("GPU-%d", 2*i+1)}
		s.open = append(s.open, ledger.MeteredAllocation{
			Allocation: ledger.Allocation{
				PodUID: uid, Account: "team", Node: "n1", Class: "h100", GPUs: 2, GPUUUIDs: gpus, State: ledger.AllocationMetering,
				IntendedAt: noon.Add(-time.Hour), StartedAt: noon.Add(-time.Hour),
			},
			MeteredUntil: noon, MeteredGPUs: gpus,
		})
		s.pods[uid] = podSide{name: "ns/" + uid, node: "n1", gpus: 2, holds: true, startedAt: noon.Add(-time.Hour), account: "team"}
	}
	return s
}

// Each kind of disagreement is found, alone, with both sides; what is on its way or nobody's is none.
func TestCompare(t *testing.T) {
	t.Parallel()
	change := func(s *sides, uid string, f func(*podSide)) {
		pod := s.pods[uid]
		f(&pod)
		s.pods[uid] = pod
	}
	for _, c := range []struct {
		name    string
		disturb func(*sides)
		want    string // kind, pod, ledger's side, other side; empty for agreement
	}{
		{"agreement", func(*sides) {}, ""},
		{"another node", func(s *sides) { change(s, "one", func(p *podSide) { p.node = "n2" }) },
			"NodeDiffers one | Metering on node n1 since 2026-03-02T11:00:00Z with 2 GPUs | the pod is bound to node n2"},
		{"not bound yet", func(s *sides) {
			change(s, "one", func(p *podSide) { p.node, p.holds = "", false })
			s.open[0].State = ledger.AllocationIntended
		}, ""},
		{"another number asked for", func(s *sides) { change(s, "one", func(p *podSide) { p.gpus = 3 }) },
			"GPUCountDiffers one | Metering on node n1 since 2026-03-02T11:00:00Z with 2 GPUs | the pod asks for 3 GPUs"},
		{"a demand that cannot be told", func(s *sides) { change(s, "one", func(p *podSide) { p.gpus = 0 }) }, ""},
		{"over", func(s *sides) { change(s, "one", func(p *podSide) { p.over, p.holds, p.overAt = true, false, noon }) },
			"OpenAfterPod one | Metering on node n1 since 2026-03-02T11:00:00Z with 2 GPUs | the pod is over since 2026-03-02T12:00:00Z"},
		{"gone", func(s *sides) { delete(s.pods, "one") },
			"OpenAfterPod one | Metering on node n1 since 2026-03-02T11:00:00Z with 2 GPUs | the API server has no such pod"},
		{"an intent whose pod is gone", func(s *sides) { delete(s.pods, "one"); s.open[0].State = ledger.AllocationIntended }, ""},
		{"other GPUs", func(s *sides) { s.open[0].MeteredGPUs = []string{"GPU-0", "GPU-1", "GPU-9"} },
			"GPUsDiffer one | first metered on GPU-0 GPU-1 | metered on GPU-0 GPU-1 GPU-9"},
		{"no GPUs named yet", func(s *sides) { s.open[0].GPUUUIDs, s.open[0].MeteredGPUs = nil, nil }, ""},
		{"a gap", func(s *sides) { s.open[0].MeteredUntil = noon.Add(-11 * time.Minute) },
			"MeteringGap one | Metering on node n1 since 2026-03-02T11:00:00Z with 2 GPUs; started 2026-03-02T11:00:00Z, metered until 2026-03-02T11:49:00Z | the agent of node n1 has metered pod two until 2026-03-02T12:00:00Z"},
		{"never metered", func(s *sides) { s.open[0].MeteredUntil = time.Time{} },
			"MeteringGap one | Metering on node n1 since 2026-03-02T11:00:00Z with 2 GPUs; started 2026-03-02T11:00:00Z, metered until (unknown) | the agent of node n1 has metered pod two until 2026-03-02T12:00:00Z"},
		{"ten intervals behind", func(s *sides) { s.open[0].MeteredUntil = noon.Add(-10 * time.Minute) }, ""},
		{"an agent that is away", func(s *sides) {
			s.open[0].MeteredUntil, s.open[1].MeteredUntil = noon.Add(-30*time.Minute), noon.Add(-30*time.Minute)
		}, ""},
		{"another node's agent", func(s *sides) {
			s.open[0].MeteredUntil, s.open[0].Node = time.Time{}, "n2"
			change(s, "one", func(p *podSide) { p.node = "n2" })
		}, ""},
		{"a silent node", func(s *sides) { s.open[0].MeteredUntil, s.open[0].State = time.Time{}, ledger.AllocationSuspect }, ""},
		{"more GPUs than there are", func(s *sides) { s.nodes["n1"] = nodeSide{gpus: map[string]int64{"h100": 3}} },
			"NodeOvercommitted two | Metering on node n1 since 2026-03-02T11:00:00Z with 2 GPUs, and 2 of class h100 in allocations before it | node n1 has 3 GPUs of class h100"},
		{"an intent beside it", func(s *sides) {
			s.nodes["n1"] = nodeSide{gpus: map[string]int64{"h100": 3}}
			s.open[1].State = ledger.AllocationIntended
		}, ""},
		{"a node that is gone", func(s *sides) { delete(s.nodes, "n1") }, ""},
		{"no allocation", func(s *sides) { s.open = s.open[1:] },
			"RunsUnallocated one | no allocation | pod ns/one holds 2 GPUs of node n1 since 2026-03-02T11:00:00Z"},
		{"an allocation that is over", func(s *sides) {
			s.open = s.open[1:]
			s.ended["one"] = ledger.Allocation{PodUID: "one", Account: "team", Node: "n1", State: ledger.AllocationEnded, EndedAt: noon.Add(-time.Minute)}
		}, "RunsUnallocated one | Ended on node n1 at 2026-03-02T11:59:00Z | pod ns/one holds 2 GPUs of node n1 since 2026-03-02T11:00:00Z"},
		{"nobody's namespace", func(s *sides) {
			s.open = s.open[1:]
			change(s, "one", func(p *podSide) { p.account = "" })
		}, ""},
	} {
		s := agreeing()
		c.disturb(&s)
		var got []string
		for _, d := range compare(s) {
			got = append(got, fmt.Sprintf("%s %s | %s | %s", d.Kind, d.PodUID, d.Ledger, d.Other))
			if d.Account != "team" || d.Key == "" {
				t.Errorf("%s: account %q, key %q", c.name, d.Account, d.Key)
			}
		}
		if text := strings.Join(got, "\n"); text != c.want {
			t.Errorf("%s: found\n%s\nwant\n%s", c.name, text, c.want)
		}
	}
}

// What disagrees for less than the settle time is not kept, also when it comes again.
func TestSettle(t *testing.T) {
	t.Parallel()
	found := []ledger.Discrepancy{{Key: "a"}}
	var since map[string]time.Time
	for _, round := range []struct {
		minute int
		found  bool
		keep   int
	}{{0, true, 0}, {4, true, 0}, {5, true, 1}, {6, true, 1}, {7, false, 0}, {8, true, 0}, {12, true, 0}, {13, true, 1}} {
		now := noon.Add(time.Duration(round.minute) * time.Minute)
		seen := found
		if !round.found {
			seen = nil
		}
		var keep []ledger.Discrepancy
		if keep, since = settle(since, seen, now, 5*time.Minute); len(keep) != round.keep {
			t.Errorf("minute %d: keeps %v, want %d", round.minute, keep, round.keep)
		}
		for _, d := range keep {
			if !d.FoundAt.Equal(now) {
				t.Errorf("found at %s", d.FoundAt)
			}
		}
	}
}

func TestFindings(t *testing.T) {
	t.Parallel()
	violations := []ledger.Violation{
		{Invariant: "I10", Subject: "ledger", Detail: "does not add up"},
		{Invariant: "I2", Subject: "account red", Detail: "balance is 5, should be 4", Accounts: []string{"red"}, Mark: "balance+1"},
		{Invariant: "I8", Subject: "account red", Detail: "entry 7 was changed", Accounts: []string{"red"}, Entry: 7},
		{Invariant: "I10", Subject: "entry 9", Detail: strings.Repeat("ü", 2_000), Accounts: []string{"blue", "system:revenue"}},
	}
	found := findings(violations)
	if len(found) != 3 || found[0].account != "red" || !strings.Contains(found[0].reason, "entry 7") || found[2].account != "blue" {
		t.Fatalf("found %+v", found)
	}
	keys := map[string]bool{}
	for _, f := range found {
		keys[f.command.Key] = true
		if refusal := ledger.Check(f.command); refusal != nil {
			t.Errorf("%s: %s", f.account, refusal)
		}
	}
	if len(keys) != 3 {
		t.Errorf("two violations share a key: %v", keys)
	}
	later := violations[1]
	later.Detail = "balance is 105, should be 104"
	if got := findings([]ledger.Violation{later}); got[0].command.Key != found[1].command.Key {
		t.Error("the same violation has another key after the account went on")
	}
}
