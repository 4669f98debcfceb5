package placement

// Terms beside the value of what is left, in the same unit as Cost. fillWeight of it is one device that stays unused, so a term
// says for how much of a device one would have an image at hand, or members of a gang near each other.

const (
	// imageWeight: all of a large image that has to be pulled counts as a hundredth of a device left idle. A pull delays one pod
	// by minutes; a gap lasts for hours.
	imageWeight = fillWeight / 100.0
	// largeImageBytes is where more makes no difference: a training image with its CUDA libraries.
	largeImageBytes = 20 << 30

	// farWeight: a gang's member that is far from all others counts as one device left idle. Collectives run at the pace of the
	// slowest link for as long as the gang runs, which costs every member more than a tenth of its time.
	farWeight = fillWeight
)

// ImageGain is what a node has ahead of one without any of the pod's images, if it has presentBytes of them.
func ImageGain(presentBytes int64) float64 {
	return imageWeight * float64(min(max(presentBytes, 0), largeImageBytes)) / largeImageBytes
}

// Levels of nearness, nearest first: the same NVLink domain, the same rack, the same zone.
const (
	LevelNVLink = iota
	LevelRack
	LevelZone
	levels
)

// levelWeight is the part of farWeight that each level has: most of the difference is between NVLink and a network.
var levelWeight = [levels]float64{LevelNVLink: 0.6, LevelRack: 0.3, LevelZone: 0.1}

// Near counts, at each level, the placed members of a gang that share the node's domain.
type Near [levels]int

// FarCost is what a gang loses if its next member goes to a node that is this near to the placed ones:
//
//	farWeight × Σ_levels weight × (1 − near / placed)
//
// Nothing if none is placed yet: the first member is free to choose.
func FarCost(near Near, placed int) float64 {
	if placed == 0 {
		return 0
	}
	var far float64
	for level, weight := range levelWeight {
		far += weight * (1 - float64(near[level])/float64(placed))
	}
	return farWeight * far
}
