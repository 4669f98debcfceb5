package ledgertest

import (
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// Batch is commands that are decided together at a moment.
type Batch struct {
	Now      time.Time
	Commands []ledger.Command
}

// History generates random batches over so few accounts, workloads, pods and keys that they collide all the time. All
// names begin with prefix, so that histories can share a database. Epochs 1 and 2 of its leader and nodes occur; 1 is
// meant to be current.
func History(prefix string) *rapid.Generator[[]Batch] {
	return rapid.Custom(func(t *rapid.T) []Batch {
		g := &historyGenerator{T: t, prefix: prefix}
		batches := []Batch{{Now: At(300), Commands: g.prologue()}}
		for i := range rapid.IntRange(1, 12).Draw(t, "batches") {
			b := Batch{Now: At(float64(301 + i))}
			for range rapid.IntRange(1, 10).Draw(t, "commands") {
				b.Commands = append(b.Commands, g.command())
			}
			batches = append(batches, b)
		}
		return batches
	})
}

// LeaderOf and NodesOf are the leader and the nodes that a history names.
func LeaderOf(prefix string) string { return prefix + "leader" }

// NodesOf see LeaderOf.
func NodesOf(prefix string) []string { return []string{prefix + "n0", prefix + "n1"} }

type historyGenerator struct {
	*rapid.T
	prefix string
}

// prologue gives the accounts something to spend, or everything would be refused.
func (g *historyGenerator) prologue() []ledger.Command {
	commands := []ledger.Command{
		ledger.SetRate{Key: g.prefix + "rate:0", Class: g.prefix + "c0", Rate: ledger.Rate(g.amount(1, 3_000_000))},
	}
	for i := range 3 {
		name := fmt.Sprintf("%sa%d", g.prefix, i)
		c := Account(name, "", 0)
		if i > 0 {
			c.Parent = fmt.Sprintf("%sa%d", g.prefix, rapid.IntRange(0, i-1).Draw(g.T, "parent"))
		}
		c.Policy.OverdraftLimit = g.amount(0, 300_000_000)
		commands = append(commands, c, ledger.PostGrant{Key: "grant:" + name, Account: name, Amount: g.amount(1, 2_000_000_000)})
	}
	return commands
}

func (g *historyGenerator) amount(least, most int64) ledger.Microcredits {
	return ledger.Microcredits(rapid.Int64Range(least, most).Draw(g.T, "amount"))
}

func (g *historyGenerator) name(kind string, count int) string {
	return fmt.Sprintf("%s%s%d", g.prefix, kind, rapid.IntRange(0, count-1).Draw(g.T, kind))
}

// key is natural mostly, so that commands repeat or clash, and sometimes another attempt.
func (g *historyGenerator) key(natural string) string {
	return fmt.Sprintf("%s%s:%d", g.prefix, natural, rapid.IntRange(0, 3).Draw(g.T, "attempt"))
}

// moment is in seconds after Start, sometimes with microseconds; little beyond now is possible.
func (g *historyGenerator) moment() time.Time {
	at := At(float64(rapid.IntRange(0, 35).Draw(g.T, "moment") * 10))
	if rapid.IntRange(0, 3).Draw(g.T, "odd") == 0 {
		at = at.Add(time.Duration(rapid.IntRange(1, 9_999_999).Draw(g.T, "µs")) * time.Microsecond)
	}
	return at
}

func (g *historyGenerator) epoch() int64 {
	if rapid.IntRange(0, 9).Draw(g.T, "stale") == 0 {
		return 2
	}
	return 1
}

func (g *historyGenerator) command() ledger.Command {
	// Numbers are weights: a history is mostly holds, allocations and intervals.
	switch n := rapid.IntRange(0, 29).Draw(g.T, "command"); {
	case n < 6:
		return g.hold()
	case n < 11:
		return g.allocate()
	case n < 20:
		return g.interval()
	case n < 23:
		return g.end()
	case n < 25:
		uid := g.name("w", 3)
		outcome := rapid.SampledFrom([]ledger.ReservationState{ledger.Settled, ledger.Released, ledger.Expired}).Draw(g.T, "outcome")
		return ledger.CloseReservation{Key: g.key("close:" + uid), UID: uid, Outcome: outcome}
	case n < 26:
		account := g.name("a", 4)
		return ledger.PostGrant{Key: g.key("grant:" + account), Account: account, Amount: g.amount(0, 1_000_000_000)}
	case n < 28:
		return g.policy()
	}
	return g.report()
}

func (g *historyGenerator) hold() ledger.PlaceHold {
	uid, gpus := g.name("w", 3), rapid.Int64Range(1, 3).Draw(g.T, "gpus")
	return ledger.PlaceHold{
		Key: g.key("hold:" + uid), UID: uid, Account: g.name("a", 3), Class: g.name("c", 2), MaxGPUs: gpus,
		GPUSeconds: gpus * rapid.Int64Range(1, 300).Draw(g.T, "seconds"),
		Workload:   ledger.WorkloadRef{Kind: "Job", Namespace: "n", Name: uid},
	}
}

func (g *historyGenerator) allocate() ledger.Allocate {
	pod, hold := g.name("p", 4), g.hold()
	c := ledger.Allocate{
		Key: g.key("allocate:" + pod), PodUID: pod, Pod: ledger.WorkloadRef{Kind: "Pod", Namespace: "n", Name: pod},
		Reservation: hold.UID, Account: hold.Account, Node: g.name("n", 2), Class: hold.Class,
		GPUs: rapid.Int64Range(1, 2).Draw(g.T, "pod GPUs"), Leader: LeaderOf(g.prefix), LeaderEpoch: g.epoch(),
	}
	if rapid.Bool().Draw(g.T, "brings its hold") {
		c.Hold = &hold
	}
	return c
}

func (g *historyGenerator) interval() ledger.RecordInterval {
	pod, start := g.name("p", 4), g.moment()
	end := start.Add(time.Duration(rapid.IntRange(0, 40).Draw(g.T, "length")) * time.Second)
	c := ledger.RecordInterval{
		Key: fmt.Sprintf("%sinterval:%s:%d:%d", g.prefix, pod, start.UnixMicro(), end.UnixMicro()), PodUID: pod,
		Node: g.name("n", 2), OwnerEpoch: g.epoch(), PodStartedAt: At(float64(rapid.IntRange(0, 3).Draw(g.T, "pod start") * 10)),
		Start: start, End: end,
	}
	for i := range rapid.IntRange(0, 2).Draw(g.T, "GPUs") {
		c.GPUUUIDs = append(c.GPUUUIDs, fmt.Sprintf("%sGPU-%d", g.prefix, i))
	}
	return c
}

func (g *historyGenerator) end() ledger.EndAllocation {
	pod := g.name("p", 4)
	c := ledger.EndAllocation{Key: g.key("end:" + pod), PodUID: pod, EndedAt: g.moment(), EndUnknown: rapid.Bool().Draw(g.T, "end unknown")}
	if rapid.IntRange(0, 3).Draw(g.T, "never held") > 0 {
		c.StartedAt = At(float64(rapid.IntRange(0, 3).Draw(g.T, "pod start") * 10))
	}
	return c
}

// policy changes accounts and rates.
func (g *historyGenerator) policy() ledger.Command {
	account := g.name("a", 4)
	switch rapid.IntRange(0, 3).Draw(g.T, "policy") {
	case 0:
		return ledger.RemoveAccount{Key: g.key("remove:" + account), Account: account}
	case 1:
		class := g.name("c", 2)
		return ledger.SetRate{Key: g.key("rate:" + class), Class: class, Rate: ledger.Rate(g.amount(1, 3_000_000))}
	}
	c := ledger.SetAccount{Key: g.key("account:" + account), Account: account}
	if rapid.Bool().Draw(g.T, "has a parent") {
		c.Parent = g.name("a", 4)
	}
	c.Policy.OverdraftLimit = g.amount(0, 300_000_000)
	return c
}

// report is what the API server or a node says about a pod.
func (g *historyGenerator) report() ledger.Command {
	pod := g.name("p", 4)
	switch rapid.IntRange(0, 4).Draw(g.T, "report") {
	case 0:
		return ledger.ConfirmBound{Key: g.key("bound:" + pod), PodUID: pod, Node: g.name("n", 2)}
	case 1:
		return ledger.ReleaseAllocation{Key: g.key("release:" + pod), PodUID: pod}
	case 2:
		return ledger.RecordStart{Key: g.key("start:" + pod), PodUID: pod, StartedAt: At(float64(rapid.IntRange(0, 3).Draw(g.T, "pod start") * 10))}
	case 3:
		return ledger.MarkSuspect{Key: g.key("suspect:" + pod), PodUID: pod, LastSeen: g.moment()}
	}
	return ledger.ClearSuspect{Key: g.key("clear:" + pod), PodUID: pod}
}
