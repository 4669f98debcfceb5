// Package nvml reads facts about a node's GPUs: which there are, and how busy they are. It knows nothing of pods or
// credits, and what it says is shown beside what was allocated, never billed.
//
// There are two implementations behind Devices: NVIDIA's library, which needs cgo and a driver, and a file that
// simulates it, for nodes without GPUs. A binary built without cgo has the simulated one only and says so.
//
// Device counters lie now and then: they go backwards after a reset, or read 4294967295 when the driver has no value.
// Such readings are discarded by Plausible and counted as a gap; they never become a figure.
package nvml
