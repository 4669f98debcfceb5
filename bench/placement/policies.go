package placement

import (
	"math/rand/v2"

	"github.com/gpubank/gpubank/pkg/placement"
)

// random takes any node that fits.
type random struct {
	source *rand.Rand
	fits   []int // of the pod at hand
}

func (p *random) Place(nodes []placement.Node, pod *placement.Request) (int, int16) {
	p.fits = p.fits[:0]
	for i := range nodes {
		if nodes[i].Fits(pod) {
			p.fits = append(p.fits, i)
		}
	}
	if len(p.fits) == 0 {
		return -1, 0
	}
	chosen := p.fits[p.source.IntN(len(p.fits))]
	return chosen, p.slot(&nodes[chosen], pod)
}

// slot is any device with room, as in the simulator, where a pod that shares one may open another.
func (p *random) slot(node *placement.Node, pod *placement.Request) int16 {
	if pod.Devices != 1 || pod.Milli == placement.WholeDevice {
		return placement.WholeSlot
	}
	roomy := node.Whole
	for roomy < node.Whole+node.Shared && node.Parts[roomy-node.Whole] >= pod.Milli {
		roomy++
	}
	chosen := int16(p.source.IntN(int(roomy)))
	if chosen < node.Whole {
		return placement.WholeSlot
	}
	return chosen - node.Whole
}

func (*random) Placed(int, *placement.Request) {}

// bestFit is the published one: the smallest of half the remaining CPU over the largest node's, plus half the remaining GPUs
// over the largest node's.
type bestFit struct {
	maxMilliCPU int32
	maxDevices  int16
}

func (p *bestFit) Place(nodes []placement.Node, pod *placement.Request) (int, int16) {
	chosen, least := -1, 0.0
	for i := range nodes {
		node := &nodes[i]
		if !node.Fits(pod) {
			continue
		}
		cost := 0.5*float64(node.MilliCPU-pod.MilliCPU)/float64(p.maxMilliCPU) +
			0.5*float64(node.MilliGPU()-pod.MilliGPU())/float64(int64(p.maxDevices)*placement.WholeDevice)
		if chosen < 0 || cost < least {
			chosen, least = i, cost
		}
	}
	if chosen < 0 {
		return -1, 0
	}
	return chosen, nodes[chosen].Slot(pod)
}

func (*bestFit) Placed(int, *placement.Request) {}

// scored is gpubank's: what the plugin does, on this cluster.
type scored struct {
	forecast *placement.Forecast
	outlook  *placement.Outlook
	kinds    map[placement.Request]int
	// costs remembers, by node and kind of request, what was computed with the outlook and not made untrue by a change of the node. It
	// changes no result.
	costs [][]cost
	fresh int32
}

type cost struct {
	value   float64
	outlook int32
	slot    int16
}

func newScored(t *Trace) *scored {
	return &scored{forecast: placement.NewForecast(), kinds: map[placement.Request]int{}, costs: make([][]cost, len(t.Nodes))}
}

func (p *scored) Place(nodes []placement.Node, pod *placement.Request) (int, int16) {
	p.forecast.Observe(*pod)
	if outlook := p.forecast.Outlook(func() []placement.Node { return nodes }); outlook != p.outlook {
		p.outlook = outlook
		p.fresh++
	}
	kind, known := p.kinds[*pod]
	if !known {
		kind = len(p.kinds)
		p.kinds[*pod] = kind
	}
	chosen, best := -1, cost{}
	for i := range nodes {
		if !nodes[i].Fits(pod) {
			continue
		}
		if each := p.cost(i, &nodes[i], kind, pod); chosen < 0 || each.value < best.value {
			chosen, best = i, each
		}
	}
	return chosen, best.slot
}

func (p *scored) cost(i int, node *placement.Node, kind int, pod *placement.Request) cost {
	if missing := kind + 1 - len(p.costs[i]); missing > 0 {
		p.costs[i] = append(p.costs[i], make([]cost, missing)...)
	}
	remembered := &p.costs[i][kind]
	if remembered.outlook != p.fresh {
		value, slot := p.outlook.Cost(node, pod)
		*remembered = cost{value, p.fresh, slot}
	}
	return *remembered
}

func (p *scored) Placed(node int, _ *placement.Request) { clear(p.costs[node]) }
