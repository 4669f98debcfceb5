package ledgertest

import (
	"fmt"
	"slices"
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
// meant to be current. Time mostly goes on by seconds, now and then to the next midnight, and sometimes back. Adjustments that
// name an entry or a discrepancy come first in their batch: what has just been found has no number yet.
func History(prefix string) *rapid.Generator[[]Batch] { return history(prefix, false) }

// VastHistory is a History in which amounts at the end of the ledger's range occur. There it does matter where batches are cut:
// what has fallen due and has no room in the sums is tried again with the next batch.
func VastHistory(prefix string) *rapid.Generator[[]Batch] { return history(prefix, true) }

func history(prefix string, vast bool) *rapid.Generator[[]Batch] {
	return rapid.Custom(func(t *rapid.T) []Batch {
		g := &historyGenerator{T: t, prefix: prefix, now: At(300), vast: vast}
		batches := []Batch{{Now: g.now, Commands: g.prologue()}}
		for range rapid.IntRange(1, 14).Draw(t, "batches") {
			g.tick()
			b := Batch{Now: g.now}
			if g.oneIn(4) {
				b.Commands = append(b.Commands, g.correction())
			}
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
	now    time.Time
	vast   bool // amounts at the end of the ledger's range occur
	// asked are the GPU-seconds that holds of a workload were asked for: what its reservation may be for.
	asked map[string][]int64
}

// tick lets time pass between two batches.
func (g *historyGenerator) tick() {
	switch n := rapid.IntRange(0, 19).Draw(g.T, "tick"); {
	case n < 13:
		g.now = g.now.Add(time.Duration(rapid.IntRange(0, 90).Draw(g.T, "seconds")) * time.Second)
	case n < 15:
		g.now = g.now.Add(-time.Duration(rapid.IntRange(1, 40).Draw(g.T, "seconds back")) * time.Second)
	case n < 17:
		midnight := ledger.PeriodDay.Next(g.now)
		g.now = midnight.Add(time.Duration(rapid.IntRange(-20, 20).Draw(g.T, "around midnight")) * time.Second)
	default:
		g.now = g.now.Add(time.Duration(rapid.IntRange(1, 90).Draw(g.T, "minutes")) * time.Minute)
	}
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
		c.Policy = g.policyOf()
		commands = append(commands, c, ledger.PostGrant{Key: "grant:" + name, Account: name, Amount: g.amount(1, 2_000_000_000), ExpiresAt: g.expiry()})
	}
	return commands
}

func (g *historyGenerator) oneIn(n int) bool { return rapid.IntRange(0, n-1).Draw(g.T, "one in") == 0 }

func (g *historyGenerator) amount(least, most int64) ledger.Microcredits {
	if g.vast && g.oneIn(3) {
		most = int64(ledger.MaxAmount)
		if least >= 0 {
			least = most / 4
		} else {
			least = -most
		}
	}
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
	if g.oneIn(4) {
		at = at.Add(time.Duration(rapid.IntRange(1, 9_999_999).Draw(g.T, "µs")) * time.Microsecond)
	}
	return at
}

// expiry is soon, most often; never, or past.
func (g *historyGenerator) expiry() time.Time {
	if g.oneIn(3) {
		return time.Time{}
	}
	return g.now.Add(time.Duration(rapid.IntRange(-1, 40).Draw(g.T, "expires in")) * 10 * time.Second)
}

func (g *historyGenerator) epoch() int64 {
	if g.oneIn(10) {
		return 2
	}
	return 1
}

func (g *historyGenerator) command() ledger.Command {
	// Numbers are weights: a history is mostly holds, allocations and intervals.
	switch n := rapid.IntRange(0, 49).Draw(g.T, "command"); {
	case n < 7:
		return g.hold()
	case n < 11:
		return g.allocate()
	case n < 13:
		return g.gang()
	case n < 22:
		return g.interval()
	case n < 26:
		return g.end()
	case n < 29:
		uid := g.name("w", 4)
		outcome := rapid.SampledFrom([]ledger.ReservationState{ledger.Settled, ledger.Released, ledger.Expired}).Draw(g.T, "outcome")
		return ledger.CloseReservation{Key: g.key("close:" + uid), UID: uid, Outcome: outcome}
	case n < 30:
		uid := g.name("w", 4)
		return ledger.PauseHold{Key: g.key("pause:" + uid), UID: uid, From: g.seen(uid)}
	case n < 31:
		hold := g.hold()
		hold.Key = ""
		from := g.seen(hold.UID)
		g.asked[hold.UID] = append(g.asked[hold.UID], from+hold.GPUSeconds)
		return ledger.EnsureHold{Key: g.key("ensure:" + hold.UID), Hold: hold, From: from}
	case n < 32:
		uid := g.name("w", 4)
		return ledger.RenewHold{Key: g.key("renew:" + uid), UID: uid, GPUSeconds: rapid.Int64Range(1, 300).Draw(g.T, "more seconds")}
	case n < 35:
		return g.refund()
	case n < 42:
		return g.money()
	case n < 46:
		return g.settings()
	}
	return g.report()
}

// seen is how many GPU-seconds a workload's reservation may be for.
func (g *historyGenerator) seen(uid string) int64 {
	return rapid.SampledFrom(append([]int64{0}, g.asked[uid]...)).Draw(g.T, "GPU-seconds seen")
}

func (g *historyGenerator) hold() ledger.PlaceHold {
	uid, gpus := g.name("w", 4), rapid.Int64Range(1, 3).Draw(g.T, "gpus")
	seconds := gpus * rapid.Int64Range(1, 300).Draw(g.T, "seconds")
	if g.asked == nil {
		g.asked = map[string][]int64{}
	}
	g.asked[uid] = append(g.asked[uid], seconds)
	return ledger.PlaceHold{
		Key: g.key("hold:" + uid), UID: uid, Account: g.name("a", 3), Class: g.class(), MaxGPUs: gpus,
		GPUSeconds: seconds,
		Workload:   ledger.WorkloadRef{Kind: "Job", Namespace: "n", Name: uid},
	}
}

// class is one that has a rate, mostly.
func (g *historyGenerator) class() string {
	if g.oneIn(6) {
		return g.name("c", 2)
	}
	return g.prefix + "c0"
}

func (g *historyGenerator) allocate() ledger.Allocate {
	pod, hold := g.name("p", 5), g.hold()
	c := ledger.Allocate{
		Key: g.key("allocate:" + pod), PodUID: pod, Pod: ledger.WorkloadRef{Kind: "Pod", Namespace: "n", Name: pod},
		Reservation: hold.UID, Account: hold.Account, Node: g.name("n", 2), Class: hold.Class,
		GPUs: rapid.Int64Range(1, 2).Draw(g.T, "pod GPUs"), Leader: LeaderOf(g.prefix), LeaderEpoch: g.epoch(),
		AlreadyRunning: g.oneIn(8),
	}
	if rapid.Bool().Draw(g.T, "brings its hold") {
		c.Hold = &hold
	}
	return c
}

// gang is pods of one account, mostly, that share reservations or bring their own; now and then one that cannot be.
func (g *historyGenerator) gang() ledger.AllocateGang {
	c := ledger.AllocateGang{Key: g.key("gang")}
	account, epoch := g.name("a", 3), g.epoch()
	for range rapid.IntRange(1, 4).Draw(g.T, "members") {
		member := g.allocate()
		if !g.oneIn(12) {
			member.AlreadyRunning, member.LeaderEpoch = false, epoch
			member.Account = account
			if member.Hold != nil {
				member.Hold.Account = account
			}
		}
		if !g.oneIn(12) && slices.ContainsFunc(c.Members, func(m ledger.Allocate) bool { return m.PodUID == member.PodUID }) {
			continue
		}
		c.Members = append(c.Members, member)
	}
	return c
}

func (g *historyGenerator) interval() ledger.RecordInterval {
	pod, start := g.name("p", 5), g.moment()
	end := start.Add(time.Duration(rapid.IntRange(0, 80).Draw(g.T, "length")) * time.Second)
	c := ledger.RecordInterval{
		Key: fmt.Sprintf("%sinterval:%s:%d:%d", g.prefix, pod, start.UnixMicro(), end.UnixMicro()), PodUID: pod,
		Node: g.name("n", 2), OwnerEpoch: g.epoch(), PodStartedAt: g.podStart(), Start: start, End: end,
	}
	for i := range rapid.IntRange(0, 2).Draw(g.T, "GPUs") {
		c.GPUUUIDs = append(c.GPUUUIDs, fmt.Sprintf("%sGPU-%d", g.prefix, i))
	}
	return c
}

func (g *historyGenerator) podStart() time.Time {
	return At(float64(rapid.IntRange(0, 3).Draw(g.T, "pod start") * 10))
}

func (g *historyGenerator) end() ledger.EndAllocation {
	pod := g.name("p", 5)
	c := ledger.EndAllocation{Key: g.key("end:" + pod), PodUID: pod, EndedAt: g.moment(), EndUnknown: rapid.Bool().Draw(g.T, "end unknown")}
	if !g.oneIn(4) {
		c.StartedAt = g.podStart()
	}
	return c
}

func (g *historyGenerator) refund() ledger.Refund {
	pod := g.name("p", 5)
	c := ledger.Refund{
		Key: g.key("refund:" + pod), PodUID: pod,
		Cause: rapid.SampledFrom([]ledger.RefundCause{ledger.RefundFailed, ledger.RefundPreempted, ledger.RefundDeviceFault}).Draw(g.T, "cause"),
	}
	if rapid.Bool().Draw(g.T, "has a checkpoint") {
		c.CheckpointedAt = g.moment()
	}
	return c
}

// money is what people move by hand, and what falls due.
func (g *historyGenerator) money() ledger.Command {
	account := g.name("a", 4)
	switch rapid.IntRange(0, 6).Draw(g.T, "money") {
	case 0, 1:
		return ledger.PostGrant{Key: g.key("grant:" + account), Account: account, Amount: g.amount(0, 1_000_000_000), ExpiresAt: g.expiry()}
	case 2:
		return ledger.Adjust{Key: g.key("adjust:" + account), Account: account, Amount: g.amount(-500_000_000, 500_000_000), Reason: "test"}
	case 3, 4:
		to := g.name("a", 3)
		return ledger.Transfer{Key: g.key("transfer:" + account), From: account, To: to, Amount: g.amount(1, 800_000_000)}
	case 5:
		if g.oneIn(2) {
			return ledger.FreezeAccount{Key: g.key("freeze:" + account), Account: account, Reason: "audit"}
		}
		return ledger.UnfreezeAccount{Key: g.key("unfreeze:" + account), Account: account, Reason: "audited"}
	}
	return ledger.PostDue{Key: g.key("due:" + account), Account: account}
}

// correction is an adjustment that names what was wrong.
func (g *historyGenerator) correction() ledger.Adjust {
	account, pod := g.name("a", 3), g.name("p", 5)
	c := ledger.Adjust{Key: g.key("correct:" + account), Account: account, Reason: "was wrong"}
	if rapid.Bool().Draw(g.T, "moves money") {
		c.Amount = g.amount(-100_000_000, 100_000_000)
		c.Corrects = rapid.Int64Range(0, 20).Draw(g.T, "entry")
	}
	if rapid.Bool().Draw(g.T, "closes a discrepancy") {
		c.Discrepancy = rapid.SampledFrom([]string{
			"end-unknown:" + pod, "start:" + pod + ":never", "gpu-count:" + pod + ":1", "after-end:" + pod,
		}).Draw(g.T, "discrepancy")
	}
	return c
}

// settings changes accounts and rates.
func (g *historyGenerator) settings() ledger.Command {
	account := g.name("a", 4)
	switch rapid.IntRange(0, 5).Draw(g.T, "settings") {
	case 0:
		return ledger.RemoveAccount{Key: g.key("remove:" + account), Account: account}
	case 1:
		class := g.name("c", 2)
		return ledger.SetRate{Key: g.key("rate:" + class), Class: class, Rate: ledger.Rate(g.amount(1, 3_000_000))}
	}
	c := ledger.SetAccount{Key: g.key("account:" + account), Account: account}
	if !g.oneIn(3) {
		c.Parent = g.name("a", 4)
	}
	c.Policy = g.policyOf()
	return c
}

// policyOf draws each rule by itself; most are absent, so that some holds pass.
func (g *historyGenerator) policyOf() (p ledger.Policy) {
	if rapid.Bool().Draw(g.T, "has overdraft") {
		p.OverdraftLimit = g.amount(0, 300_000_000)
	}
	if g.oneIn(3) {
		p.Funding = rapid.SampledFrom([]ledger.Funding{ledger.FundingOwn, ledger.FundingAncestor, ledger.FundingAncestor}).Draw(g.T, "funding")
	}
	if g.oneIn(3) {
		p.Spending = ledger.SpendingLimit{
			Amount: g.amount(1, 900_000_000),
			Period: rapid.SampledFrom(append(ledger.Periods, ledger.PeriodDay, ledger.PeriodDay)).Draw(g.T, "period"),
		}
	}
	if g.oneIn(4) {
		p.RunningJobs = rapid.Int64Range(1, 2).Draw(g.T, "running jobs")
	}
	if g.oneIn(3) {
		amount := g.amount(1, 100_000_000)
		p.Refill = ledger.Refill{
			Amount: amount, PeriodSeconds: rapid.SampledFrom([]int64{100, 700, 3600, 86400}).Draw(g.T, "refill period"),
			Cap: amount * ledger.Microcredits(rapid.Int64Range(1, 12).Draw(g.T, "refills")),
		}
	}
	percent := func(label string) int64 { return rapid.SampledFrom([]int64{0, 33, 100}).Draw(g.T, label) }
	if g.oneIn(2) {
		p.Refunds = ledger.RefundPolicy{
			FailedPercent: percent("failed"), PreemptedPercent: percent("preempted"),
			PreemptedSinceCheckpoint: rapid.Bool().Draw(g.T, "since checkpoint"), DeviceFault: rapid.Bool().Draw(g.T, "device fault"),
		}
	}
	return p
}

// report is what the API server or a node says about a pod.
func (g *historyGenerator) report() ledger.Command {
	pod := g.name("p", 5)
	switch rapid.IntRange(0, 4).Draw(g.T, "report") {
	case 0:
		return ledger.ConfirmBound{Key: g.key("bound:" + pod), PodUID: pod, Node: g.name("n", 2)}
	case 1:
		return ledger.ReleaseAllocation{Key: g.key("release:" + pod), PodUID: pod}
	case 2:
		return ledger.RecordStart{Key: g.key("start:" + pod), PodUID: pod, StartedAt: g.podStart()}
	case 3:
		return ledger.MarkSuspect{Key: g.key("suspect:" + pod), PodUID: pod, LastSeen: g.moment()}
	}
	return ledger.ClearSuspect{Key: g.key("clear:" + pod), PodUID: pod}
}
