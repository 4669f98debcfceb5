package placement

import (
	"math"
	"math/rand/v2"
	"testing"
)

// h100 is an HGX machine: eight devices, 192 cores, 2 TiB.
var h100 = Node{MilliCPU: 192000, MemoryMiB: 2 << 20, Whole: 8}

func pod(devices, milli int16, milliCPU int32) Request {
	return Request{Devices: devices, Milli: milli, MilliCPU: milliCPU, MemoryMiB: 1024}
}

func outlookOf(nodes []Node, seen ...Request) *Outlook {
	f := NewForecast()
	for _, r := range seen {
		f.Observe(r)
	}
	return f.Outlook(func() []Node { return nodes })
}

func after(n Node, requests ...Request) Node {
	for i := range requests {
		n.Take(&requests[i], n.Slot(&requests[i]))
	}
	return n
}

func cheapest(o *Outlook, r Request, nodes ...Node) int {
	chosen, least := -1, math.Inf(1)
	for i := range nodes {
		if !nodes[i].Fits(&r) {
			continue
		}
		if cost, _ := o.Cost(&nodes[i], &r); cost < least {
			chosen, least = i, cost
		}
	}
	return chosen
}

func repeat(times int, requests ...Request) []Request {
	var all []Request
	for range times {
		all = append(all, requests...)
	}
	return all
}

// What anybody would do, without being told how: the score is a formula, and these are its consequences.
func TestCost(t *testing.T) {
	one, two, eight := pod(1, WholeDevice, 20000), pod(2, WholeDevice, 40000), pod(8, WholeDevice, 160000)
	t4 := Request{Devices: 1, Milli: WholeDevice, MilliCPU: 8000, Classes: 1 << 1}
	for _, tc := range []struct {
		name  string
		seen  []Request
		asked Request
		nodes []Node // the best first
	}{
		{"a node in use, before one that is whole, though nothing has been seen", nil, one, []Node{after(h100, two, one), h100}},
		{"the same, when all that was seen is small", repeat(200, one), one, []Node{after(h100, two, one), h100}},
		{"the same, for pods of eight among them", repeat(50, one, one, eight), one, []Node{after(h100, one), h100}},
		{"exactly what is left", repeat(50, one, two), two, []Node{after(h100, two, two, two), after(h100, two, two, one), after(h100, one)}},
		{"a pod of few cores, where few cores are left", repeat(50, one, pod(1, WholeDevice, 4000)), pod(1, WholeDevice, 4000), []Node{
			after(h100, repeat(4, pod(1, WholeDevice, 44000))...), after(h100, repeat(4, one)...),
		}},
		{"whoever may go anywhere, away from what some depend on", repeat(50, one, one, one, t4), one, []Node{
			after(h100, one), {MilliCPU: 96000, MemoryMiB: 1 << 19, Whole: 2, Class: 1},
		}},
		{"a pod without GPUs, where no devices are left", repeat(50, one), Request{MilliCPU: 16000, MemoryMiB: 4096}, []Node{
			after(h100, repeat(8, pod(1, WholeDevice, 20000))...), h100,
		}},
		{"a share of a device, beside another", repeat(50, pod(1, 500, 8000), one), pod(1, 500, 8000), []Node{after(h100, pod(1, 500, 8000)), h100}},
		{"a share, on the device that it fills", repeat(50, pod(1, 300, 4000), pod(1, 700, 4000)), pod(1, 300, 4000), []Node{
			after(h100, pod(1, 700, 4000)), after(h100, pod(1, 300, 4000)),
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			others := append(repeatNode(20, h100), tc.nodes...)
			o := outlookOf(others, tc.seen...)
			if got := cheapest(o, tc.asked, tc.nodes...); got != 0 {
				for i := range tc.nodes {
					cost, slot := o.Cost(&tc.nodes[i], &tc.asked)
					t.Logf("%d costs %.4f on slot %d: %+v", i, cost, slot, tc.nodes[i])
				}
				t.Errorf("node %d is the cheapest, want 0", got)
			}
		})
	}
}

func repeatNode(times int, n Node) []Node {
	nodes := make([]Node, times)
	for i := range nodes {
		nodes[i] = n
	}
	return nodes
}

// What is remembered is what is computed.
func TestRememberedValuesAreTrue(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 3))
	var seen []Request
	for range 300 {
		seen = append(seen, randomRequest(random))
	}
	nodes := repeatNode(10, h100)
	warm := outlookOf(nodes, seen...)
	var states []Node
	for range 3000 {
		node := h100
		for range random.IntN(12) {
			if r := randomRequest(random); node.Fits(&r) {
				node.Take(&r, node.Slot(&r))
			}
		}
		states = append(states, node)
		warm.Value(&node)
	}
	for i := 0; i < len(states); i += 300 {
		if cold := outlookOf(nodes, seen...); cold.Value(&states[i]) != warm.Value(&states[i]) {
			t.Fatalf("%+v is worth %v, remembered as %v", states[i], cold.Value(&states[i]), warm.Value(&states[i]))
		}
	}
}

func TestCostAllocatesNothing(t *testing.T) {
	one, half := pod(1, WholeDevice, 8000), pod(1, 500, 8000)
	o := outlookOf(repeatNode(10, h100), repeat(50, one, half)...)
	for what, n := range map[string]Node{"a new node": h100, "a node in use": after(h100, half, one, pod(1, 300, 100))} {
		if allocated := testing.AllocsPerRun(100, func() { n.MilliCPU--; o.Cost(&n, &half) }); allocated != 0 {
			t.Errorf("%s: %v allocations", what, allocated)
		}
	}
}

// The same pods in the same order make the same outlook, whatever the order of maps.
func TestForecastIsDeterministic(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 4))
	var seen []Request
	for range 3*MaxKinds + 100 {
		seen = append(seen, randomRequest(random))
	}
	nodes := repeatNode(10, h100)
	first, second := outlookOf(nodes, seen...), outlookOf(nodes, seen...)
	for range 100 {
		node := h100
		if r := randomRequest(random); node.Fits(&r) {
			node.Take(&r, node.Slot(&r))
		}
		if a, b := first.Value(&node), second.Value(&node); a != b {
			t.Fatalf("%+v is worth %v and %v", node, a, b)
		}
	}
}

// The newer a pod, the more it counts: after as many pods as the half-life, one kind that went out of use counts as one in two of before.
func TestMixForgets(t *testing.T) {
	m := NewMix()
	old, recent := pod(1, WholeDevice, 1000), pod(1, WholeDevice, 2000)
	for range 10 * HalfLife {
		m.Observe(old)
	}
	for range HalfLife {
		m.Observe(recent)
	}
	for _, kind := range m.Kinds() {
		if kind.Request == old && math.Abs(kind.Share-0.5) > 0.01 {
			t.Errorf("the old kind's share is %.3f, want 0.5", kind.Share)
		}
	}
	var sum float64
	kinds := m.Kinds()
	for _, kind := range kinds {
		sum += kind.Share
	}
	if math.Abs(sum-1) > 1e-9 || len(kinds) != 2+len(prior) {
		t.Errorf("%d kinds, shares add up to %v", len(kinds), sum)
	}
}
