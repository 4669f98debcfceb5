package ledger

import "time"

// DeviceFault is what a node's agent reports of one of its GPUs: an XID error of NVIDIA's driver. It is kept beside the
// ledger, and is what a refund for a device fault rests on.
type DeviceFault struct {
	Node string
	// GPUUUID is the whole GPU's, or that of a MIG device on it.
	GPUUUID string
	XID     int64 // 1 or more
	// It was raised after Since and not after At.
	Since, At time.Time
}
