// Command gpubank-local runs all of gpubank on this machine: `demo` tells one team's story and leaves nothing, `up`
// leaves a cluster in the background to explore, `down` removes it.
//
// Both run the same stack: package cluster's PostgreSQL and control plane, and package parts' commands of gpubank.
// `up` starts a copy of this program, the supervisor, that holds everything and ends with it: `down` only has to end
// the supervisor, and whatever kills that kills all (see cluster.Process).
package main
