package ledger

import "time"

// PreemptionReason says by what right a pod was stopped for another.
type PreemptionReason string

const (
	// PreemptedByPriority: the other pod's priority is higher.
	PreemptedByPriority PreemptionReason = "Priority"
	// PreemptedByReclaim: the other pod's account was below its guaranteed share, and this pod's had borrowed.
	PreemptedByReclaim PreemptionReason = "Reclaim"
)

// Preemption is the decision to stop one pod for another, as it was recorded before anything was evicted. It is kept beside the
// ledger: no money follows from it. A decision that stops several pods is several rows under one key.
type Preemption struct {
	Key       string
	DecidedAt time.Time
	// Leader and LeaderEpoch are the leadership under which it was decided (I7).
	Leader      string
	LeaderEpoch int64
	Reason      PreemptionReason
	Node        string // where the preemptor is to go
	Preemptor   PreemptionParty
	Victim      PreemptionParty
	// LostSince is from when on the victim's work was believed to be lost; zero if it had not started.
	LostSince      time.Time
	RestartSeconds int64
	// LostGPUSeconds is what its stop was believed to destroy: its own part, where others stop with it.
	LostGPUSeconds int64
}

// PreemptionParty is one of the two.
type PreemptionParty struct {
	UID string
	Pod WorkloadRef
	// Workload is the UID of the workload whose attempt the pod is.
	Workload string
	Account  string // "" if nobody pays
	GPUs     int64
	Priority int64
}

// PreemptionOutcome is what became of a victim, as found when it was over.
type PreemptionOutcome struct {
	Key, VictimUID string
	// Preempted: it was stopped by the scheduler. Otherwise it ended by itself, or somebody else ended it, and nothing was lost by this decision.
	Preempted bool
	StoppedAt time.Time
	// CheckpointedAt is its last checkpoint as reported by then, zero for none.
	CheckpointedAt time.Time
	LostGPUSeconds int64
}

// PreemptionRecord is a decision with its outcome, nil while the victim is not over.
type PreemptionRecord struct {
	Preemption
	Outcome *PreemptionOutcome
}
