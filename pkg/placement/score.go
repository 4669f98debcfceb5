package placement

const (
	// fillWeight is what one device that is likely to be filled counts beside the loss of room. On the traces 8 to 16 differ by
	// a tenth of a point; much more starves large pods, much less packs loosely. See docs/designs/placement-score.md.
	fillWeight = 14
	// reach is how much a node is imagined to be offered, in multiples of what it has free: it is one node of many, so it can wait for
	// what suits it, but not forever. 4 to 16 differ by a tenth of a point.
	reach = 8
)

// Value is what a node with this much free is worth to what is likely to come:
//
//	Value(n) = Σ_i worth_i × hosts_i(n)  −  fillWeight × idle(n)
//
// The first sum is over the kinds of requests in the recent mix: hosts_i(n) is how many pods of kind i the node could take, and
// worth_i (see Outlook) is large for what is asked for much and has little room left in the cluster. It is the gradient of Σ_i
// demand_i × ln(room_i): what keeps room for every kind in proportion to how much it is needed, be it whole nodes, a model that
// few nodes have, or CPUs beside free GPUs.
//
// The second is what the node would be left with: idle(n) is the mean, over imagined futures, of the devices that nobody uses
// after the node has been offered pods drawn from the mix, one after another and taking each that fits, until it has been
// offered `reach` times what it has free.
func (o *Outlook) Value(n *Node) float64 {
	if value, known := o.values.get(n); known {
		return value
	}
	var value float64
	for i := range o.kinds {
		value += o.kinds[i].worth * float64(n.Hosts(&o.kinds[i].request))
	}
	value -= fillWeight * o.idle(n)
	o.values.put(n, value)
	return value
}

func (o *Outlook) idle(n *Node) float64 {
	free := n.MilliGPU()
	if free == 0 {
		return 0
	}
	if idle, known := o.idles.get(n); known {
		return idle
	}
	var sum int64
	for _, future := range o.futures {
		sum += o.idleAfter(*n, free, future)
	}
	idle := devices(sum) / float64(len(o.futures))
	o.idles.put(n, idle)
	return idle
}

// idleAfter plays one future on a copy of the node.
func (o *Outlook) idleAfter(n Node, free int64, future []uint16) int64 {
	offers := free * reach
	for _, kind := range future {
		r := &o.wanted[kind]
		asked := r.MilliGPU()
		if n.MilliCPU >= r.MilliCPU && n.MemoryMiB >= r.MemoryMiB && r.Admits(n.Class) {
			if slot := n.Slot(r); slot != NoDevice {
				n.Take(r, slot)
				if free -= asked; free == 0 {
					return 0
				}
			}
		}
		if offers -= asked; offers <= 0 {
			break
		}
	}
	return free
}

// Cost is what the cluster loses when the node takes the request, which must fit: Value before, less Value after. Of the devices
// that a sharing pod could take, the cheapest is assumed, and its slot returned. The node with the least cost is the best.
func (o *Outlook) Cost(n *Node, r *Request) (cost float64, slot int16) {
	before := o.Value(n)
	slot = NoDevice
	try := func(candidate int16) {
		after := *n
		after.Take(r, candidate)
		if lost := before - o.Value(&after); slot == NoDevice || lost < cost {
			cost, slot = lost, candidate
		}
	}
	if r.Devices == 1 && r.Milli < WholeDevice {
		for i := n.Shared - 1; i >= 0; i-- {
			// Devices with as much left as the one before are the same choice.
			if n.Parts[i] >= r.Milli && (i == n.Shared-1 || n.Parts[i] != n.Parts[i+1]) {
				try(i)
			}
		}
	}
	if n.Whole >= r.Devices {
		try(WholeSlot)
	}
	return cost, slot
}
