package placement

import (
	"math/rand/v2"
	"slices"
)

const (
	// futures is how many imagined sequences of arrivals a node is filled with. Four times as many gave the same results.
	futures = 32
	// drawsPerFuture bounds one of them.
	drawsPerFuture = 512
	// futureSeed makes all of them the same ones each time: two nodes, or one node before and after, meet the same luck.
	futureSeed = 0x6f70656e62
)

// Outlook is what the score knows of the world beyond one node: what is likely to be submitted, and how scarce room for each
// kind is. It never changes once made, so any number of goroutines may score with it.
type Outlook struct {
	kinds []weighed
	// futures index kinds, drawn by their shares.
	futures [][]uint16
	// wanted are kinds' requests in the order of futures' indexes, side by side for speed.
	wanted []Request
	// idles and values remember what was computed. The first stays true as long as the futures do.
	idles, values *table
}

// weighed is a kind that asks for devices, and what it is worth that a node could take one more of it.
type weighed struct {
	request Request
	worth   float64
}

// NewOutlook looks at a cluster's nodes in the light of a mix.
func NewOutlook(mix []Kind, nodes []Node) *Outlook {
	o := &Outlook{idles: newTable(), values: newTable()}
	o.weigh(mix, nodes)
	o.imagine(mix)
	return o
}

// Revise returns the outlook for changed nodes, with the same futures: those follow the mix, which changes slowly, while
// scarcity follows the nodes.
func (o *Outlook) Revise(mix []Kind, nodes []Node) *Outlook {
	revised := &Outlook{futures: o.futures, wanted: o.wanted, idles: o.idles, values: newTable()}
	revised.weigh(mix, nodes)
	return revised
}

// weigh sets, for each kind i that asks for devices,
//
//	worth_i = demand_i × size_i × free / room_i
//
// where size_i is what one pod asks for, in devices; demand_i its share of all devices asked for; free all that is free in the
// cluster; and room_i what of it pods of kind i could use if no others came: Σ over nodes of how many fit, × size_i.
func (o *Outlook) weigh(mix []Kind, nodes []Node) {
	distinct := map[Node]int{}
	var freeMilli int64
	for i := range nodes {
		distinct[nodes[i]]++
		freeMilli += nodes[i].MilliGPU()
	}
	var demand float64
	for _, kind := range mix {
		demand += kind.Share * devices(kind.Request.MilliGPU())
	}
	for _, kind := range mix {
		size := devices(kind.Request.MilliGPU())
		if size == 0 {
			continue
		}
		var fits int // whole numbers, so that the order of a map makes no difference
		for node, count := range distinct {
			fits += count * int(node.Hosts(&kind.Request))
		}
		if fits == 0 { // whatever is done, there is no room to lose
			continue
		}
		o.kinds = append(o.kinds, weighed{kind.Request, kind.Share * size / demand * size * devices(freeMilli) / (float64(fits) * size)})
	}
}

// imagine draws the futures. In each place of all futures together every part of the mix is drawn as often as its share demands
// (Latin hypercube sampling, kinds in the order of what they ask for), so that few futures tell as much as many drawn
// independently.
func (o *Outlook) imagine(mix []Kind) {
	mix = slices.Clone(mix)
	slices.SortFunc(mix, func(a, b Kind) int { return compare(a.Request, b.Request) })
	cumulative := make([]float64, len(mix))
	var sum float64
	for i, kind := range mix {
		sum += kind.Share
		cumulative[i] = sum
		o.wanted = append(o.wanted, kind.Request)
	}
	o.futures = make([][]uint16, futures)
	for i := range o.futures {
		o.futures[i] = make([]uint16, drawsPerFuture)
	}
	random := rand.New(rand.NewPCG(futureSeed, 0))
	for place := range drawsPerFuture {
		for stratum, future := range random.Perm(len(o.futures)) {
			drawn := (float64(stratum) + random.Float64()) / float64(len(o.futures)) * sum
			at, _ := slices.BinarySearch(cumulative, drawn)
			o.futures[future][place] = uint16(min(at, len(mix)-1))
		}
	}
}

func devices(milli int64) float64 { return float64(milli) / WholeDevice }
