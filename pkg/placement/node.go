package placement

// WholeDevice is a device, in thousandths of itself.
const WholeDevice = 1000

// MaxDevices is the most devices of one node that are told apart, which is twice what an HGX machine has.
const MaxDevices = 16

// Request is what one pod asks of one node.
type Request struct {
	MilliCPU  int32
	MemoryMiB int32
	// Devices is how many it needs; 0 for a pod without GPUs.
	Devices int16
	// Milli is how much it needs of each, 1 to WholeDevice; less than WholeDevice only of a single device, which it shares.
	Milli int16
	// Classes has a bit for each node class that may serve it. 0 means that any may.
	Classes uint64
}

// MilliGPU is all that the request asks for, in thousandths of a device.
func (r *Request) MilliGPU() int64 { return int64(r.Devices) * int64(r.Milli) }

// Admits reports whether nodes of the class may serve the request.
func (r *Request) Admits(class uint16) bool { return r.Classes == 0 || r.Classes>>(class&63)&1 == 1 }

// Node is what one node has free. It is a value: equal nodes are interchangeable, whatever their names.
type Node struct {
	MilliCPU  int32
	MemoryMiB int32
	// Class numbers the node's GPU model, 0 to 63.
	Class uint16
	// Whole counts the devices that nobody uses.
	Whole int16
	// Parts are the free thousandths of the devices that are shared, largest first; the others are 0.
	Parts [MaxDevices]int16
	// Shared is how many of Parts are not 0.
	Shared int16
}

// MilliGPU is all that is free on the node, in thousandths of a device.
func (n *Node) MilliGPU() int64 {
	sum := int64(n.Whole) * WholeDevice
	for _, part := range n.Parts[:n.Shared] {
		sum += int64(part)
	}
	return sum
}

// NoDevice is the answer of Device when none fits.
const NoDevice int16 = -2

// WholeSlot stands for a device that nobody uses, where a slot of Parts is asked for.
const WholeSlot int16 = -1

// Slot is where the node's devices take the request: the index in Parts of the shared device with the least room that
// suffices, else WholeSlot, else NoDevice.
func (n *Node) Slot(r *Request) int16 {
	if r.Milli < WholeDevice && r.Devices == 1 {
		for i := n.Shared - 1; i >= 0; i-- {
			if n.Parts[i] >= r.Milli {
				return i
			}
		}
	}
	if n.Whole >= r.Devices {
		return WholeSlot
	}
	return NoDevice
}

// Fits reports whether the request fits on the node.
func (n *Node) Fits(r *Request) bool {
	return n.MilliCPU >= r.MilliCPU && n.MemoryMiB >= r.MemoryMiB && r.Admits(n.Class) && n.Slot(r) != NoDevice
}

// Take places a request that fits, on the slot given, which must be one that Slot could have returned.
func (n *Node) Take(r *Request, slot int16) {
	n.MilliCPU -= r.MilliCPU
	n.MemoryMiB -= r.MemoryMiB
	switch {
	case r.Devices == 0:
	case slot != WholeSlot:
		left := n.Parts[slot] - r.Milli
		// Parts stay sorted: what is smaller now moves down.
		for slot+1 < n.Shared && n.Parts[slot+1] > left {
			n.Parts[slot] = n.Parts[slot+1]
			slot++
		}
		n.Parts[slot] = left
		if left == 0 {
			n.Shared--
		}
	case r.Milli == WholeDevice:
		n.Whole -= r.Devices
	default:
		n.Whole--
		left, at := WholeDevice-r.Milli, n.Shared
		for at > 0 && n.Parts[at-1] < left {
			n.Parts[at] = n.Parts[at-1]
			at--
		}
		n.Parts[at] = left
		n.Shared++
	}
}

// Hosts is how many pods like r, which asks for devices, the node could take if it took no others.
func (n *Node) Hosts(r *Request) int32 {
	if !r.Admits(n.Class) {
		return 0
	}
	var count int32
	if r.Milli == WholeDevice {
		count = int32(n.Whole / r.Devices)
	} else {
		count = int32(n.Whole) * int32(WholeDevice/r.Milli)
		for _, part := range n.Parts[:n.Shared] {
			if part < r.Milli {
				break
			}
			count += int32(part / r.Milli)
		}
	}
	// A division costs more than all the rest, and is seldom needed.
	if int64(count)*int64(r.MilliCPU) > int64(n.MilliCPU) {
		count = n.MilliCPU / r.MilliCPU
	}
	if int64(count)*int64(r.MemoryMiB) > int64(n.MemoryMiB) {
		count = n.MemoryMiB / r.MemoryMiB
	}
	return count
}
