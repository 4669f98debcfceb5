package simulation

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// start is when every simulated ledger begins: a Sunday evening, so that days, a week and a month end on the way.
var start = time.Date(2026, 5, 31, 20, 0, 0, 0, time.UTC)

const (
	// lanes is how many callers there are. Each waits for an answer before it goes on, as controllers do.
	lanes = 96
	// Writers are ledger stores: in this process, and in child processes that can be killed.
	localWriters, childWriters = 3, 2
	writers                    = localWriters + childWriters
	// leaderships and nodes are few, so that their epochs matter to many.
	leaderships, nodes = 2, 12
)

// Plan is everything that a run does, fixed by the seed.
type Plan struct {
	Seed     uint64
	Commands int
	// Setup is decided before anything fails.
	Setup []ledger.Command
	// Lanes are what each caller delivers, in order.
	Lanes [][]Delivery
	// Faults strike in order, each when so many commands were sent.
	Faults []Fault
	// Pods are all attempts at workloads that are ever spoken of, in the order of lanes.
	Pods []Pod
}

// Delivery is commands that a caller sends together.
type Delivery struct {
	// At is the simulated time: the clocks of all writers stand there or later.
	At time.Time
	// Writer is told first, and the ones after it when it gives no answer. Twin, if not negative, is told the same at the
	// same time.
	Writer, Twin int
	// Patience is how long an answer is waited for at first.
	Patience time.Duration
	// Async queues the commands without giving up on them, as the scheduler does.
	Async bool
	Steps []Step
}

// Step is one command. An epoch is filled in when it is sent: the current one, or with Stale the one before it.
type Step struct {
	Command ledger.Command
	Stale   bool
}

// Pod is an attempt at a workload as the plan knows it.
type Pod struct {
	UID, Workload string
	Class         string
	GPUs          int64
	// Start and End are its own times; zero for one that never held its GPUs. Whoever speaks of it says these, unless Odd.
	Start, End time.Time
	// Odd: contradicting reports are made of it, so its price is not known beforehand.
	Odd bool
	// EndCommand ends it.
	EndCommand ledger.EndAllocation
}

// NewPlan makes the plan of a seed with about so many commands.
func NewPlan(seed uint64, commands int) *Plan {
	p := &Plan{Seed: seed, Commands: commands}
	w := newWorld(rand.New(rand.NewPCG(seed, 0)), seed)
	p.Setup = w.setup()
	for lane := range lanes {
		g := &laneGenerator{
			Rand: rand.New(rand.NewPCG(seed, uint64(lane)+1)), world: w, lane: lane,
			now: start.Add(time.Duration(lane) * 7 * time.Second), prefix: fmt.Sprintf("s%d-l%d", seed, lane),
		}
		g.generate(commands / lanes)
		p.Lanes = append(p.Lanes, g.deliveries)
		p.Pods = append(p.Pods, g.pods...)
	}
	p.Faults = planFaults(rand.New(rand.NewPCG(seed, lanes+1)), commands)
	return p
}

func leaderName(n int) string { return fmt.Sprintf("scheduler-%d", n) }

func nodeName(n int) string { return fmt.Sprintf("node-%d", n) }

// chance is true in so many of a thousand cases.
func chance(r *rand.Rand, perMille int) bool { return r.IntN(1000) < perMille }

// between is a number from least to most.
func between[T ~int | ~int64](r *rand.Rand, least, most T) T {
	return least + T(r.Int64N(int64(most-least)+1))
}

// oneOf picks one.
func oneOf[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// credits is an amount, sometimes with a fraction.
func credits(r *rand.Rand, least, most int64) ledger.Microcredits {
	amount := ledger.Microcredits(between(r, least, most)) * ledger.Credit
	if chance(r, 300) {
		amount += ledger.Microcredits(r.Int64N(int64(ledger.Credit)))
	}
	return amount
}
