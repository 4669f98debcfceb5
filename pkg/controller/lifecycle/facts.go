package lifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/workload"
)

// podFacts is everything that decidePod may know.
type podFacts struct {
	now time.Time
	// pod is nil when the API server has confirmed that no pod of this UID exists.
	pod *corev1.Pod
	// sight is what a watch last showed of a pod that is gone; nil if nothing.
	sight *sight
	// allocation is the ledger's row, nil if there is none.
	allocation *ledger.Allocation
	// lastMetered is the end of the latest charged interval, zero if there is none; only gathered when endIsUnclear.
	lastMetered time.Time
	node        nodeFacts
	// nodeGrace is how long a node may be silent, and how long intervals may be on their way.
	nodeGrace time.Duration

	// enrolment and demand concern pods that exist.
	enrolment enrolment
	demand    workload.Demand
	demandErr error
	// cover is what a late allocation would be made under; only gathered when one is needed.
	cover cover
	// refunds is the spender's policy; only gathered of attempts that may have ended otherwise than well.
	refunds ledger.RefundPolicy
	// faults are what the pod's node reported of its GPUs since the pod's start; only gathered where that is refunded.
	faults []ledger.DeviceFault
}

// mayBeRefunded reports whether the pod's end, if this is it, may call for a refund.
func (f podFacts) mayBeRefunded() bool {
	over := f.pod != nil && (workload.Held(f.pod).Ended || f.node.lost(f.now, f.nodeGrace))
	return over && f.pod.Status.Phase != corev1.PodSucceeded && controllerutil.ContainsFinalizer(f.pod, v1alpha1.MeteringFinalizer)
}

// endIsUnclear reports whether the end of an open allocation may have to be taken from what others vouch for.
func (f podFacts) endIsUnclear() bool {
	if f.pod == nil || f.node.missing || f.node.outOfService {
		return true
	}
	held := workload.Held(f.pod)
	return held.Ended && (held.EndUnknown || held.End.IsZero())
}

// enrolment says who pays for a namespace.
type enrolment struct {
	// account is empty when nobody does.
	account string
	// claimed is the account that the namespace's label names although the account does not list the namespace.
	claimed string
	// defaultMaxRuntime is the account's, 0 for none.
	defaultMaxRuntime time.Duration
}

// cover is what a late allocation is made under.
type cover struct {
	// reservation is an open one that covers the pod; nil if there is none and the pod gets its own.
	reservation *ledger.Reservation
	// leaderEpoch is this controller's epoch in the ledger.
	leaderEpoch int64
}

// nodeFacts is what is known of a pod's node.
type nodeFacts struct {
	// missing: the API server has confirmed that there is no such Node, first at missingSince.
	missing      bool
	missingSince time.Time
	// outOfService: somebody has vouched that the node is off, by the taint node.kubernetes.io/out-of-service.
	outOfService bool
	// cordoned: an operator has taken it out of scheduling (spec.unschedulable).
	cordoned bool
	// lastRenewal is when the node last proved to be alive, zero if that is not known.
	lastRenewal time.Time
}

// silent reports whether the node has not been heard of for longer than grace. A node that never had a lease is not
// known to be silent.
func (n nodeFacts) silent(now time.Time, grace time.Duration) bool {
	return !n.lastRenewal.IsZero() && now.Sub(n.lastRenewal) > grace
}

// lost reports whether the node will not say any more about its pods, so that they verifiably hold nothing: it is vouched
// to be off, or its Node was deleted and its kubelet is silent too. A kubelet that still renews its lease is still
// running containers, whatever became of the Node object. It makes a missing lease anew within seconds, so that none
// for a whole grace means that there is no kubelet.
func (n nodeFacts) lost(now time.Time, grace time.Duration) bool {
	silentSince := n.lastRenewal
	if silentSince.IsZero() {
		silentSince = n.missingSince
	}
	return n.outOfService || n.missing && now.Sub(silentSince) > grace
}

// sight is a pod as a watch last showed it before it went.
type sight struct {
	held workload.HeldTime
	// at is when the deletion was seen.
	at time.Time
}

// live reports whether the pod was holding GPUs when it went.
func (s *sight) live() bool { return s != nil && !s.held.Ended && !s.held.Start.IsZero() }

func latest(times ...time.Time) time.Time {
	var last time.Time
	for _, t := range times {
		if t.After(last) {
			last = t
		}
	}
	return last
}
