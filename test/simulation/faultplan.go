package simulation

import (
	"math/rand/v2"
	"time"
)

// FaultKind names what goes wrong.
type FaultKind string

const (
	// FaultLatency: answers to one writer come late.
	FaultLatency FaultKind = "latency"
	// FaultSlicer: they come in crumbs.
	FaultSlicer FaultKind = "slicer"
	// FaultReset: its connections are reset when it next sends something.
	FaultReset FaultKind = "reset-peer"
	// FaultHalfOpen: what it sends arrives, what comes back does not, and nothing is closed: the answer to a COMMIT is lost.
	FaultHalfOpen FaultKind = "half-open"
	// FaultMute: the other way round, what it sends is lost.
	FaultMute FaultKind = "mute"
	// FaultCut: its connections are closed after some more bytes, anywhere in a conversation.
	FaultCut FaultKind = "cut"
	// FaultSlowClose: they end for one side long before they end for the other.
	FaultSlowClose FaultKind = "slow-close"
	// FaultUnreachable: they are dropped, and new ones refused.
	FaultUnreachable FaultKind = "unreachable"
	// FaultTerminate: pg_terminate_backend of some of all backends.
	FaultTerminate FaultKind = "terminate-backend"
	// FaultPostgresKilled: SIGKILL for PostgreSQL and everything below it, then a start with recovery.
	FaultPostgresKilled FaultKind = "postgres-killed"
	// FaultWriterKilled: SIGKILL for a child process at any moment.
	FaultWriterKilled FaultKind = "writer-killed"
	// FaultDiesBeforeReply: a child process dies after its COMMIT is durable and before it has said so.
	FaultDiesBeforeReply FaultKind = "dies-before-reply"
	// FaultWriterRestarted: a writer is closed in order and opened again.
	FaultWriterRestarted FaultKind = "writer-restarted"
	// FaultClockJump: a writer's clock is wrong from now on, or right again.
	FaultClockJump FaultKind = "clock-jump"
	// FaultNewLeader and FaultNewAgent begin an epoch; who writes under the one before is refused.
	FaultNewLeader FaultKind = "new-leader"
	FaultNewAgent  FaultKind = "new-agent"
	// AuditOnline is no fault: the audit while everybody writes.
	AuditOnline FaultKind = "audit-online"
	// CompactionOnline is none either: everything that has ended is compacted while everybody writes, late reports included.
	CompactionOnline FaultKind = "compaction-online"
)

// Fault is one thing that goes wrong.
type Fault struct {
	Kind FaultKind
	// After is how many commands have been sent when it strikes.
	After int
	// Writer is which one it concerns, Number which leadership or node.
	Writer, Number int
	// For is how long it lasts; Delay how late things are; Bytes how many pass; all where the kind has it.
	For, Delay time.Duration
	Bytes      int
	// Offset is what the writer's clock is ahead of simulated time.
	Offset time.Duration
}

// postgresLife is how many commands PostgreSQL lives for, on average.
const postgresLife = 12_000

func planFaults(r *rand.Rand, commands int) []Fault {
	weighted := []struct {
		kind   FaultKind
		weight int
	}{
		{FaultLatency, 8}, {FaultSlicer, 6}, {FaultReset, 12}, {FaultHalfOpen, 8}, {FaultMute, 4}, {FaultCut, 14}, {FaultSlowClose, 4},
		{FaultUnreachable, 6}, {FaultTerminate, 16}, {FaultWriterKilled, 8}, {FaultDiesBeforeReply, 14}, {FaultWriterRestarted, 4},
		{FaultClockJump, 16}, {FaultNewLeader, 8}, {FaultNewAgent, 12}, {AuditOnline, 2}, {CompactionOnline, 12},
	}
	sum := 0
	for _, w := range weighted {
		sum += w.weight
	}
	var faults []Fault
	nextKill := between(r, postgresLife/3, postgresLife)
	for after := between(r, 50, 300); after < commands*95/100; after += between(r, 50, 350) {
		f := Fault{
			After: after, Writer: r.IntN(writers), For: time.Duration(between(r, 50, 300)) * time.Millisecond,
			Delay: time.Duration(between(r, 5, 120)) * time.Millisecond, Bytes: between(r, 1, 6_000),
		}
		n := r.IntN(sum)
		for _, w := range weighted {
			if n < w.weight {
				f.Kind = w.kind
				break
			}
			n -= w.weight
		}
		if after >= nextKill {
			f.Kind = FaultPostgresKilled
			nextKill += between(r, postgresLife/2, postgresLife*3/2)
		}
		switch f.Kind {
		case FaultWriterKilled, FaultDiesBeforeReply:
			f.Writer = localWriters + r.IntN(childWriters)
			f.Number = between(r, 1, 40) // replies that still get out
		case FaultClockJump:
			f.Offset = planOffset(r)
		case FaultNewLeader:
			f.Number = r.IntN(leaderships)
		case FaultNewAgent:
			f.Number = r.IntN(nodes)
		}
		faults = append(faults, f)
	}
	return faults
}

// planOffset is mostly within what a clock without a time daemon drifts, and sometimes a day or a month.
func planOffset(r *rand.Rand) time.Duration {
	switch n := r.IntN(100); {
	case n < 40:
		return 0
	case n < 60:
		return between(r, -20*time.Second, 20*time.Second)
	case n < 85:
		return between(r, -3*time.Hour, 3*time.Hour)
	case n < 95:
		return between(r, -36*time.Hour, 36*time.Hour)
	}
	return between(r, -24*time.Hour, 40*24*time.Hour)
}
