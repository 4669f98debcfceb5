package placement

import (
	"cmp"
	"math"
	"slices"
)

const (
	// HalfLife is after how many submitted pods an older one counts half: long enough that one job's many pods do not hide everybody
	// else's, short enough that a cluster whose work changes is understood anew within a day of work.
	HalfLife = 2000
	// MaxKinds is how many kinds of requests are told apart. The public traces have 120 to 400; the rarest are forgotten first.
	MaxKinds = 256
	// priorPods is for how many pods the prior counts, however many have been seen.
	priorPods = 4
)

// prior is what is expected before anything is known, and never quite ruled out: one, two, four and eight whole devices. It is
// also what keeps whole nodes together in a cluster that has only been sent small pods so far.
var prior = []Request{
	{Devices: 1, Milli: WholeDevice}, {Devices: 2, Milli: WholeDevice}, {Devices: 4, Milli: WholeDevice}, {Devices: 8, Milli: WholeDevice},
}

// Kind is one kind of request and the share of all pods that are of it.
type Kind struct {
	Request Request
	Share   float64
}

// Mix is what is submitted, learned from what was: the newer a pod, the more it counts. It is not safe for use by several goroutines.
type Mix struct {
	weight map[Request]float64
	// next is what the next pod counts. It grows, so that the others need not shrink one by one.
	next float64
	step float64
	// Seen is how many pods have been observed.
	Seen int
}

// NewMix returns the mix that knows the prior only.
func NewMix() *Mix {
	return &Mix{weight: map[Request]float64{}, next: 1, step: math.Exp2(1.0 / HalfLife)}
}

// maxWeight is where weights are scaled down, far from where floats lose small additions.
const maxWeight = 1e12

// Observe counts a pod that was submitted.
func (m *Mix) Observe(r Request) {
	m.Seen++
	m.weight[r] += m.next
	m.next *= m.step
	if m.next > maxWeight {
		for kind := range m.weight {
			m.weight[kind] /= m.next
		}
		m.next = 1
	}
	if len(m.weight) > 2*MaxKinds {
		m.forget()
	}
}

// forget keeps the MaxKinds that weigh most.
func (m *Mix) forget() {
	for _, kind := range m.sorted()[MaxKinds:] {
		delete(m.weight, kind.Request)
	}
}

// sorted lists kinds by weight, which Share holds here. Ties are broken by the request, so that equal histories have equal mixes.
func (m *Mix) sorted() []Kind {
	kinds := make([]Kind, 0, len(m.weight))
	for request, weight := range m.weight {
		kinds = append(kinds, Kind{request, weight})
	}
	slices.SortFunc(kinds, func(a, b Kind) int {
		return cmp.Or(-cmp.Compare(a.Share, b.Share), compare(a.Request, b.Request))
	})
	return kinds
}

func compare(a, b Request) int {
	return cmp.Or(cmp.Compare(a.Devices, b.Devices), cmp.Compare(a.Milli, b.Milli), cmp.Compare(a.MilliCPU, b.MilliCPU),
		cmp.Compare(a.MemoryMiB, b.MemoryMiB), cmp.Compare(a.Classes, b.Classes))
}

// Kinds are the MaxKinds that weigh most, and the prior. Their shares add up to 1.
func (m *Mix) Kinds() []Kind {
	kinds := m.sorted()
	kinds = kinds[:min(len(kinds), MaxKinds)]
	for _, request := range prior {
		kinds = append(kinds, Kind{request, m.next * priorPods / float64(len(prior))})
	}
	var sum float64
	for _, kind := range kinds {
		sum += kind.Share
	}
	for i := range kinds {
		kinds[i].Share /= sum
	}
	return kinds
}
