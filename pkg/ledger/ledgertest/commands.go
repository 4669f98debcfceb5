package ledgertest

import (
	"fmt"
	"time"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// The names that the commands of this package use where a test does not care.
const (
	Class  = "h100"
	Node   = "node-1"
	Leader = "gpubank-scheduler"
)

// Start is when the stories of tests begin.
var Start = time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)

// At is a moment, in seconds after Start.
func At(seconds float64) time.Time {
	return ledger.Instant(Start.Add(time.Duration(seconds * float64(time.Second))))
}

// Account sets an account up; parent is empty for a root.
func Account(name, parent string, overdraftLimit ledger.Microcredits) ledger.SetAccount {
	return ledger.SetAccount{
		Key: fmt.Sprintf("account:%s:%s:%d", name, parent, overdraftLimit), Account: name, Parent: parent,
		Policy: ledger.Policy{OverdraftLimit: overdraftLimit},
	}
}

// Rate prices Class at one credit per GPU-second.
func Rate() ledger.SetRate {
	return ledger.SetRate{Key: "rate:" + Class + ":1", Class: Class, Rate: ledger.Rate(ledger.Credit)}
}

// Grant gives credits; key tells grants apart.
func Grant(key, account string, credits int64) ledger.PostGrant {
	return ledger.PostGrant{
		Key: "grant:" + key, Account: account, Amount: ledger.Microcredits(credits) * ledger.Credit, Reason: "test", Actor: "ledgertest",
	}
}

// Hold sets aside gpus × seconds for a workload.
func Hold(uid, account string, gpus, seconds int64) ledger.PlaceHold {
	return ledger.PlaceHold{
		Key: "hold:" + uid, UID: uid, Account: account, Class: Class, MaxGPUs: gpus, GPUSeconds: gpus * seconds,
		Workload: ledger.WorkloadRef{Kind: "Job", Namespace: "team", Name: uid},
	}
}

// Allocate places a pod of a workload on Node under leader epoch 1.
func Allocate(pod, workload, account string, gpus int64) ledger.Allocate {
	return ledger.Allocate{
		Key: "allocate:" + pod + ":1:1", PodUID: pod, Pod: ledger.WorkloadRef{Kind: "Pod", Namespace: "team", Name: pod},
		Reservation: workload, Account: account, Node: Node, Class: Class, GPUs: gpus, Leader: Leader, LeaderEpoch: 1,
	}
}

// Bound confirms that a pod is on Node.
func Bound(pod string) ledger.ConfirmBound {
	return ledger.ConfirmBound{Key: "bound:" + pod + ":" + Node, PodUID: pod, Node: Node}
}

// Interval is metered time of a pod that started at podStart, in seconds after Start, reported by Node's agent under
// epoch 1.
func Interval(pod string, podStart, from, to float64, gpuUUIDs ...string) ledger.RecordInterval {
	return ledger.RecordInterval{
		Key:    fmt.Sprintf("interval:%s:%d:%d", pod, At(from).UnixMicro(), At(to).UnixMicro()),
		PodUID: pod, Node: Node, OwnerEpoch: 1, PodStartedAt: At(podStart), Start: At(from), End: At(to), GPUUUIDs: gpuUUIDs,
	}
}

// End ends a pod that ran from one moment to another, in seconds after Start.
func End(pod string, from, to float64) ledger.EndAllocation {
	return ledger.EndAllocation{Key: "end:" + pod, PodUID: pod, StartedAt: At(from), EndedAt: At(to), Reason: "Succeeded"}
}

// Close settles a workload.
func Close(uid string) ledger.CloseReservation {
	return ledger.CloseReservation{Key: "close:" + uid, UID: uid, Outcome: ledger.Settled, Reason: "Complete"}
}
