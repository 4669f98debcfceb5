package simulation

import (
	"time"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// withCompanion places the pod in a gang, with one that brings its own hold and is given up at once: all or none of two reservations.
func (g *laneGenerator) withCompanion(c ledger.Allocate) {
	uid := g.name("g")
	hold := ledger.PlaceHold{
		UID: uid, Account: c.Account, Workload: ledger.WorkloadRef{Kind: "Pod", Namespace: "n", Name: uid}, Class: c.Class,
		MaxGPUs: 1, GPUSeconds: between[int64](g.Rand, 1, 3600),
	}
	companion := c
	companion.PodUID, companion.Pod, companion.Reservation, companion.GPUs, companion.Hold = uid, hold.Workload, uid, 1, &hold
	companion.Node = nodeName(g.IntN(nodes))
	gang := ledger.AllocateGang{Key: "gang:" + c.PodUID, Members: []ledger.Allocate{c, companion}}
	if chance(g.Rand, 500) {
		gang.Members[0], gang.Members[1] = companion, c
	}
	for i := range gang.Members {
		gang.Members[i].Key, gang.Members[i].AlreadyRunning = "", false
	}
	g.say(gang)
	g.pass(0, time.Minute)
	g.say(ledger.ReleaseAllocation{Key: "release:" + uid, PodUID: uid, Reason: "a member died"})
	g.pass(0, time.Minute)
	end := ledger.EndAllocation{Key: "end:" + uid, PodUID: uid, EndedAt: g.now, Reason: "gone"}
	g.pods = append(g.pods, Pod{UID: uid, Workload: uid, Class: c.Class, GPUs: 1, EndCommand: end})
}

// placements are the pods that a command places.
func placements(command ledger.Command) []ledger.Allocate {
	switch c := command.(type) {
	case ledger.Allocate:
		return []ledger.Allocate{c}
	case ledger.AllocateGang:
		return c.Members
	}
	return nil
}

// holdsOf are the holds that a command places.
func holdsOf(command ledger.Command) (holds []ledger.PlaceHold) {
	if c, ok := command.(ledger.PlaceHold); ok {
		return []ledger.PlaceHold{c}
	}
	for _, c := range placements(command) {
		if c.Hold != nil {
			holds = append(holds, *c.Hold)
		}
	}
	return holds
}
