package placement

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// plainNode is the obvious model: every device with what it has free.
type plainNode struct {
	cpu, memory int32
	class       uint16
	devices     []int16
}

func (p *plainNode) node() Node {
	n := Node{MilliCPU: p.cpu, MemoryMiB: p.memory, Class: p.class}
	parts := slices.Sorted(slices.Values(p.devices))
	slices.Reverse(parts)
	for _, free := range parts {
		switch {
		case free == WholeDevice:
			n.Whole++
		case free > 0:
			n.Parts[n.Shared] = free
			n.Shared++
		}
	}
	return n
}

// take places r on the fitting device with the least room, or on as many whole ones as it needs.
func (p *plainNode) take(r *Request) bool {
	if p.cpu < r.MilliCPU || p.memory < r.MemoryMiB || r.Classes != 0 && r.Classes>>p.class&1 == 0 {
		return false
	}
	var chosen []int
	for range r.Devices {
		best := -1
		for i, free := range p.devices {
			if free >= r.Milli && !slices.Contains(chosen, i) && (best < 0 || free < p.devices[best]) {
				best = i
			}
		}
		if best < 0 {
			return false
		}
		chosen = append(chosen, best)
	}
	for _, i := range chosen {
		p.devices[i] -= r.Milli
	}
	p.cpu -= r.MilliCPU
	p.memory -= r.MemoryMiB
	return true
}

func randomRequest(random *rand.Rand) Request {
	r := Request{MilliCPU: random.Int32N(20000), MemoryMiB: random.Int32N(60000), Classes: uint64(random.IntN(4))}
	switch random.IntN(4) {
	case 0:
	case 1:
		r.Devices, r.Milli = int16(1+random.IntN(8)), WholeDevice
	default:
		r.Devices, r.Milli = 1, int16(10+random.IntN(990))
	}
	return r
}

// Random pods on random nodes, beside the plain model. On no device do shares ever add up to more than the device (E24): the model would go
// below zero where Node said that a pod fits.
func TestNodeAgreesWithPlainModel(t *testing.T) {
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 1))
		plain := &plainNode{cpu: 128000, memory: 786432, class: uint16(random.IntN(2))}
		for range 1 + random.IntN(MaxDevices) {
			plain.devices = append(plain.devices, WholeDevice)
		}
		node := plain.node()
		for range 60 {
			r := randomRequest(random)
			fits := node.Fits(&r)
			if took := plain.take(&r); took != fits {
				t.Fatalf("seed %d: fits %v, the model %v: %+v on %+v", seed, fits, took, r, plain)
			}
			if fits {
				node.Take(&r, node.Slot(&r))
			}
			if want := plain.node(); node != want {
				t.Fatalf("seed %d: after %+v\n got %+v\nwant %+v", seed, r, node, want)
			}
			for _, free := range plain.devices {
				if free < 0 || free > WholeDevice {
					t.Fatalf("seed %d: a device has %d free", seed, free)
				}
			}
		}
	}
}

// Hosts is how many times the pod can be placed in a row.
func TestHostsAgreesWithPlacing(t *testing.T) {
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 2))
		node := Node{MilliCPU: random.Int32N(128000), MemoryMiB: random.Int32N(786432), Class: uint16(random.IntN(2)), Whole: int16(random.IntN(9))}
		for range random.IntN(8) {
			share := Request{Devices: 1, Milli: int16(10 + random.IntN(990))}
			if node.Fits(&share) {
				node.Take(&share, node.Slot(&share))
			}
		}
		r := randomRequest(random)
		if r.Devices == 0 {
			continue
		}
		left, placed := node, int32(0)
		for left.Fits(&r) {
			left.Take(&r, left.Slot(&r))
			placed++
		}
		if got := node.Hosts(&r); got != placed {
			t.Fatalf("seed %d: hosts %d, placed %d: %+v on %+v", seed, got, placed, r, node)
		}
	}
}
