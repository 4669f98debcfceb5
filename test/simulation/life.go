package simulation

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// laneGenerator writes what one caller delivers.
type laneGenerator struct {
	*rand.Rand
	world  *world
	lane   int
	prefix string
	now    time.Time // simulated
	count  int       // names things

	deliveries []Delivery
	pods       []Pod
	// settings are those of the accounts that this lane alone changes.
	settings map[string]ledger.SetAccount
	endings  []string // pods whose end was unknown: there is a discrepancy to close
}

// generate writes whole lives until there are enough commands, and then disturbs their delivery.
func (g *laneGenerator) generate(commands int) {
	g.ownSettings()
	for g.sent() < commands*9/10 { // the rest are repetitions
		if chance(g.Rand, 780) {
			g.life()
		} else {
			g.upkeep()
		}
	}
	g.disturb()
}

func (g *laneGenerator) sent() int {
	sum := 0
	for _, d := range g.deliveries {
		sum += len(d.Steps)
	}
	return sum
}

func (g *laneGenerator) name(kind string) string {
	g.count++
	return fmt.Sprintf("%s-%s%d", g.prefix, kind, g.count)
}

// pass lets simulated time go on.
func (g *laneGenerator) pass(least, most time.Duration) time.Time {
	g.now = g.now.Add(between(g.Rand, least, most).Truncate(time.Microsecond))
	return g.now
}

// say delivers commands now.
func (g *laneGenerator) say(commands ...ledger.Command) {
	d := Delivery{
		At: g.now, Writer: g.IntN(writers), Twin: -1,
		Patience: time.Duration(between(g.Rand, 200, 1_200)) * time.Millisecond, Async: chance(g.Rand, 80),
	}
	for _, c := range commands {
		d.Steps = append(d.Steps, Step{Command: c, Stale: chance(g.Rand, 15) && hasEpoch(c)})
	}
	g.deliveries = append(g.deliveries, d)
}

func hasEpoch(c ledger.Command) bool {
	switch c.(type) {
	case ledger.Allocate, ledger.AllocateGang, ledger.RecordInterval:
		return true
	}
	return false
}

// spender is mostly a team.
func (g *laneGenerator) spender() string {
	if chance(g.Rand, 100) {
		return oneOf(g.Rand, g.world.departments...)
	}
	return oneOf(g.Rand, g.world.teams...)
}

// life is a workload from its hold to its end.
func (g *laneGenerator) life() {
	uid := g.name("w")
	gpus, attempts := oneOf[int64](g.Rand, 1, 1, 2, 4, 8), oneOf(g.Rand, 1, 1, 1, 2, 3)
	parallel := int64(1)
	if attempts > 1 && chance(g.Rand, 400) {
		parallel = 2
	}
	seconds := between[int64](g.Rand, 60, 6*3600)
	hold := ledger.PlaceHold{
		Key: "hold:" + uid, UID: uid, Account: g.spender(), Workload: ledger.WorkloadRef{Kind: "Job", Namespace: "n", Name: uid},
		Class: oneOf(g.Rand, g.world.classes...), MaxGPUs: gpus * parallel, GPUSeconds: gpus * parallel * seconds,
	}
	brought := chance(g.Rand, 150) // the pod brings its hold, as when the webhook was away
	if !brought {
		g.say(hold)
	}
	outcome := ledger.Settled
	switch {
	case chance(g.Rand, 80): // nothing comes of it
		outcome = oneOf(g.Rand, ledger.Released, ledger.Expired)
	case parallel == 2:
		g.together(hold, gpus, seconds)
	default:
		for range attempts {
			g.pass(time.Second, time.Minute)
			g.attempt(hold, gpus, between(g.Rand, 1, seconds*5/4), brought)
		}
	}
	g.pass(time.Second, 10*time.Minute)
	g.say(ledger.CloseReservation{Key: "close:" + uid, UID: uid, Outcome: outcome, Reason: "over"})
	g.pass(time.Second, 30*time.Minute)
}

// together is two pods that run at once: what is said about them is interleaved.
func (g *laneGenerator) together(hold ledger.PlaceHold, gpus, seconds int64) {
	before, began := g.deliveries, g.now
	g.deliveries = nil
	g.attempt(hold, gpus, between(g.Rand, 1, seconds), false)
	one, ended := g.deliveries, g.now
	g.deliveries, g.now = nil, began
	g.attempt(hold, gpus, between(g.Rand, 1, seconds), false)
	if ended.After(g.now) {
		g.now = ended
	}
	both := append(one, g.deliveries...)
	slices.SortStableFunc(both, func(a, b Delivery) int { return a.At.Compare(b.At) })
	g.deliveries = append(before, both...)
}

// attempt is one pod.
func (g *laneGenerator) attempt(hold ledger.PlaceHold, gpus, seconds int64, brought bool) {
	pod := Pod{UID: g.name("p"), Workload: hold.UID, Class: hold.Class, GPUs: gpus}
	node := nodeName(g.IntN(nodes))
	g.place(hold, pod, node, brought)
	g.pass(0, 2*time.Second)
	g.say(ledger.ConfirmBound{Key: "bound:" + pod.UID + ":" + node, PodUID: pod.UID, Node: node})
	if chance(g.Rand, 40) { // the node rejected it
		g.pass(0, time.Second)
		pod.EndCommand = ledger.EndAllocation{Key: "end:" + pod.UID, PodUID: pod.UID, EndedAt: g.now, Reason: "rejected"}
		g.pods = append(g.pods, pod)
		g.say(pod.EndCommand)
		return
	}
	pod.Start = g.pass(0, 5*time.Second)
	pod.End = pod.Start.Add(time.Duration(seconds)*time.Second + time.Duration(g.IntN(1_000_000))*time.Microsecond)
	if chance(g.Rand, 500) {
		g.say(ledger.RecordStart{Key: "start:" + pod.UID, PodUID: pod.UID, StartedAt: pod.Start})
	}
	late := g.meter(hold, &pod, node)
	g.now = pod.End
	g.pass(0, 3*time.Second)
	g.end(&pod)
	for _, c := range late {
		g.pass(0, time.Minute)
		g.say(c)
	}
	if chance(g.Rand, 250) {
		refund := ledger.Refund{
			Key: "refund:" + pod.UID, PodUID: pod.UID, Reason: "it happens",
			Cause: oneOf(g.Rand, ledger.RefundFailed, ledger.RefundPreempted, ledger.RefundDeviceFault),
		}
		if chance(g.Rand, 500) {
			refund.CheckpointedAt = pod.Start.Add(time.Duration(g.Int64N(int64(pod.End.Sub(pod.Start)) + 1)))
		}
		g.say(refund)
	}
	g.pods = append(g.pods, pod)
}

// place binds the pod, sometimes after an intent that was given up.
func (g *laneGenerator) place(hold ledger.PlaceHold, pod Pod, node string, brought bool) {
	c := ledger.Allocate{
		PodUID: pod.UID, Pod: ledger.WorkloadRef{Kind: "Pod", Namespace: "n", Name: pod.UID}, Reservation: hold.UID,
		Account: hold.Account, Class: hold.Class, GPUs: pod.GPUs, Leader: leaderName(g.IntN(leaderships)),
		AlreadyRunning: chance(g.Rand, 20),
	}
	if brought {
		c.Hold = &hold
	}
	if chance(g.Rand, 60) {
		c.Key, c.Node = "allocate:"+pod.UID+":1", nodeName(g.IntN(nodes))
		g.say(c)
		g.say(ledger.ReleaseAllocation{Key: "release:" + pod.UID, PodUID: pod.UID, Reason: "did not fit after all"})
		g.pass(0, time.Minute)
	}
	c.Key, c.Node = "allocate:"+pod.UID+":2", node
	if chance(g.Rand, 80) {
		g.withCompanion(c)
		return
	}
	g.say(c)
}

// meter cuts the pod's time into uneven pieces. Some are never reported, some twice, some only after its end; those are
// returned.
func (g *laneGenerator) meter(hold ledger.PlaceHold, pod *Pod, node string) (late []ledger.Command) {
	cuts := []time.Time{pod.Start, pod.End}
	for range g.IntN(8) {
		cuts = append(cuts, ledger.Instant(pod.Start.Add(time.Duration(g.Int64N(int64(pod.End.Sub(pod.Start)))))))
	}
	slices.SortFunc(cuts, time.Time.Compare)
	cuts = slices.CompactFunc(cuts, time.Time.Equal)
	var gpus []string
	for i := range pod.GPUs {
		gpus = append(gpus, fmt.Sprintf("GPU-%s-%d", node, i))
	}
	for i := 1; i < len(cuts); i++ {
		c := ledger.RecordInterval{
			Key: fmt.Sprintf("interval:%s:%d", pod.UID, i), PodUID: pod.UID, Node: node, PodStartedAt: pod.Start,
			Start: cuts[i-1], End: cuts[i], GPUUUIDs: gpus,
		}
		g.now = later(g.now, c.End)
		switch {
		case chance(g.Rand, 70):
		case chance(g.Rand, 100):
			late = append(late, c)
		default:
			g.say(c)
		}
		g.meanwhile(hold, pod, c)
	}
	return late
}

// meanwhile is what happens to a running pod now and then.
func (g *laneGenerator) meanwhile(hold ledger.PlaceHold, pod *Pod, last ledger.RecordInterval) {
	switch {
	case chance(g.Rand, 30):
		g.say(ledger.MarkSuspect{Key: g.name("suspect"), PodUID: pod.UID, LastSeen: last.Start})
		if chance(g.Rand, 800) {
			g.say(ledger.ClearSuspect{Key: g.name("clear"), PodUID: pod.UID})
		}
	case chance(g.Rand, 40):
		g.say(ledger.RenewHold{Key: g.name("renew"), UID: hold.UID, GPUSeconds: between[int64](g.Rand, 1, 3600) * pod.GPUs})
	case chance(g.Rand, 10): // measured in other pieces, by an agent that lost its notes
		last.Key, last.End = g.name("odd-interval"), last.End.Add(-time.Microsecond)
		if last.Start.Before(last.End) {
			g.say(last)
		}
	case chance(g.Rand, 10): // contradictions about when it began, and about when it was over
		pod.Odd = true
		g.say(ledger.RecordStart{Key: g.name("odd-start"), PodUID: pod.UID, StartedAt: pod.Start.Add(time.Second)})
		last.Key, last.Start, last.End = g.name("odd-interval"), pod.End, pod.End.Add(time.Minute)
		g.say(last)
	}
}

func (g *laneGenerator) end(pod *Pod) {
	pod.EndCommand = ledger.EndAllocation{
		Key: "end:" + pod.UID, PodUID: pod.UID, StartedAt: pod.Start, EndedAt: pod.End, Reason: "Succeeded",
		EndUnknown: chance(g.Rand, 40),
	}
	if pod.EndCommand.EndUnknown {
		g.endings = append(g.endings, pod.UID)
	}
	g.say(pod.EndCommand)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
