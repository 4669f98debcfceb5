package lifecycle

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/workload"
)

// Reasons that people read in the statement and in discrepancies.
const (
	reasonEnded         = "pod ended"
	reasonNeverHeld     = "pod never held its GPUs"
	reasonPodGone       = "pod is gone"
	reasonNodeLost      = "node is gone or out of service"
	reasonFinishUnknown = "the finish of a container was never reported"
	reasonNeverBound    = "pod ended before it was bound"
)

// Alerts: what only a person can put right. Each is a label value of a metric, and a Warning event on the pod.
const (
	alertUnpriced     = "UnpricedPod"         // a GPU pod runs, and no price can be told
	alertUnpaid       = "NobodyPays"          // a GPU pod runs where label and account disagree on who pays
	alertRunsAfterEnd = "RunsAfterEnd"        // the ledger ended the allocation, the pod runs on
	alertNoSuchBind   = "LedgerSaysBound"     // the ledger has it bound, the API server has not
	alertRefused      = "LedgerRefusedUpdate" // the ledger refuses what the cluster shows
)

// askForPrice is how often a pod without a price is looked at: a class that appears is no event of the pod's, and one that
// has ended has no other events any more.
const askForPrice = time.Minute

// plan is what is to be done about a pod, in this order: commands, refund, alert, finalizer, looking again.
type plan struct {
	// commands are submitted in order; the first refusal ends the plan.
	commands []ledger.Command
	// addFinalizer and removeFinalizer exclude each other. Removal happens only after every command was carried out.
	addFinalizer, removeFinalizer bool
	// refund is submitted after the commands, and before the finalizer is removed: a pod that was let go has had its answer.
	refund *ledger.Refund
	// checkpointIgnored says why the checkpoint that the pod reports does not count for the refund.
	checkpointIgnored   string
	alert, alertMessage string
	// lookAgain is 0 when the next event or sweep is soon enough.
	lookAgain time.Duration
}

func (p *plan) raise(alert, format string, arguments ...any) {
	p.alert, p.alertMessage = alert, fmt.Sprintf(format, arguments...)
}

// ends reports whether the plan ends an allocation.
func (p *plan) ends() bool {
	return slices.ContainsFunc(p.commands, func(c ledger.Command) bool { _, ends := c.(ledger.EndAllocation); return ends })
}

// refundable reports whether an attempt has ended, was charged and has had no refund yet.
func refundable(allocation *ledger.Allocation) bool {
	return allocation != nil && allocation.State == ledger.AllocationEnded && allocation.Charged > 0 && allocation.RefundedFor == ""
}

// decidePod says what a pod and its allocation need.
func decidePod(key PodKey, facts podFacts) plan {
	if facts.pod == nil {
		return decideGone(key, facts)
	}
	p := plan{}
	pod, held := facts.pod, workload.Held(facts.pod)
	hasFinalizer := controllerutil.ContainsFinalizer(pod, v1alpha1.MeteringFinalizer)
	if pod.Spec.NodeName == "" {
		decideUnbound(&p, key, facts, held)
		p.removeFinalizer = p.removeFinalizer && hasFinalizer
		return p
	}
	allocation := facts.allocation
	switch {
	case allocation == nil:
		if decideLate(&p, facts, held) {
			p.commands = append(p.commands, lateAllocate(key, facts))
			decideBound(&p, key, facts, ledger.Allocation{State: ledger.AllocationIntended}, held)
		}
	case allocation.State != ledger.AllocationEnded:
		decideBound(&p, key, facts, *allocation, held)
	default: // Ended
		p.removeFinalizer = held.Ended || facts.node.lost(facts.now, facts.nodeGrace)
		if !p.removeFinalizer {
			p.raise(alertRunsAfterEnd, "the ledger ended this pod's allocation at %s, and it still runs on node %s: delete the pod",
				allocation.EndedAt.Format(time.RFC3339), pod.Spec.NodeName)
		}
	}
	p.removeFinalizer = p.removeFinalizer && hasFinalizer
	if p.removeFinalizer && (p.ends() || refundable(allocation)) {
		var wait time.Duration
		if p.refund, p.checkpointIgnored, wait = decideRefund(key, held, facts); wait > 0 {
			p.removeFinalizer, p.lookAgain = false, wait
		}
	}
	// A finalizer cannot be added to an object that is being deleted.
	p.addFinalizer = len(p.commands) > 0 || allocation != nil && allocation.Open()
	p.addFinalizer = p.addFinalizer && !hasFinalizer && !p.removeFinalizer && !held.Ended && pod.DeletionTimestamp.IsZero()
	return p
}

// decideUnbound: a pod that is not on a node holds nothing, and once it is being deleted or over it cannot be bound any more.
func decideUnbound(p *plan, key PodKey, facts podFacts, held workload.HeldTime) {
	over := held.Ended || !facts.pod.DeletionTimestamp.IsZero()
	allocation := facts.allocation
	if !over {
		return
	}
	if allocation != nil && allocation.Open() {
		if allocation.State != ledger.AllocationIntended {
			p.raise(alertNoSuchBind, "the ledger has this pod bound to %s, the API server on no node", allocation.Node)
			return
		}
		p.commands = append(p.commands, release(key, *allocation, reasonNeverBound))
	}
	p.removeFinalizer = true
}

// decideLate is about a pod that is bound without an allocation: another scheduler placed it, or the ledger was never
// told. It reports whether one is to be made, so that its time is charged (I9).
func decideLate(p *plan, facts podFacts, held workload.HeldTime) bool {
	switch {
	case held.NeverHeld(), // rejected by its kubelet
		facts.demandErr == nil && facts.demand.IsZero(),                // none of ours, however the finalizer came there
		facts.enrolment.account == "" && facts.enrolment.claimed == "": // not enrolled: nothing is metered here
		p.removeFinalizer = true
	case facts.enrolment.account == "":
		p.raise(alertUnpaid, "the namespace names account %s, which does not list the namespace: its GPU time is charged to nobody", facts.enrolment.claimed)
		p.removeFinalizer = held.Ended
	case facts.demandErr != nil:
		p.raise(alertUnpriced, "this pod holds GPUs that have no price: %v; it is kept, also after its end, until a GPUClass gives one", facts.demandErr)
		p.lookAgain = askForPrice
	default:
		return true
	}
	return false
}

// decideBound follows the allocation of a pod that is on a node. Its state is any but Ended: an intent that was given
// up while the binding succeeded is confirmed too (B9), and the API server's word on the node beats the intent's.
func decideBound(p *plan, key PodKey, facts podFacts, allocation ledger.Allocation, held workload.HeldTime) {
	node := facts.pod.Spec.NodeName
	if allocation.State == ledger.AllocationIntended || allocation.State == ledger.AllocationReleased {
		p.commands = append(p.commands, ledger.ConfirmBound{
			Key: fmt.Sprintf("bound:%s:%s", key.UID, node), PodUID: key.UID, Node: node,
		})
	}
	started := allocation.StartedAt
	if started.IsZero() {
		started = held.Start
	}
	switch {
	case held.NeverHeld():
		p.commands = append(p.commands, end(key, time.Time{}, time.Time{}, reasonNeverHeld, false))
		p.removeFinalizer = true
		return
	case held.Ended && !held.EndUnknown && !held.End.IsZero():
		p.commands = append(p.commands, end(key, started, held.End, reasonEnded, false))
		p.removeFinalizer = true
		return
	}
	if allocation.StartedAt.IsZero() && !held.Start.IsZero() {
		p.commands = append(p.commands, ledger.RecordStart{Key: "start:" + key.UID, PodUID: key.UID, StartedAt: held.Start})
	}
	switch {
	case facts.node.lost(facts.now, facts.nodeGrace):
		vouched := latest(allocation.LastSeen, facts.node.lastRenewal, facts.lastMetered)
		if vouched.IsZero() {
			vouched = held.End // nobody saw the node's last moment; what was written about the pod is all there is
		}
		p.commands = append(p.commands, end(key, started, latest(vouched, started), reasonNodeLost, true))
		p.removeFinalizer = true
	case facts.node.missing:
		p.lookAgain = facts.nodeGrace // its kubelet was alive a moment ago
	case facts.node.silent(facts.now, facts.nodeGrace):
		if allocation.State != ledger.AllocationSuspect {
			p.commands = append(p.commands, ledger.MarkSuspect{
				Key:    fmt.Sprintf("suspect:%s:%d", key.UID, facts.node.lastRenewal.UnixMicro()),
				PodUID: key.UID, LastSeen: facts.node.lastRenewal,
			})
		}
	case allocation.State == ledger.AllocationSuspect && !facts.node.lastRenewal.After(allocation.LastSeen):
		// Nothing newer was heard, so this is not a node that came back.
	case allocation.State == ledger.AllocationSuspect:
		p.commands = append(p.commands, ledger.ClearSuspect{
			Key:    fmt.Sprintf("clear:%s:%d", key.UID, facts.node.lastRenewal.UnixMicro()),
			PodUID: key.UID,
		})
		p.lookAgain = time.Second // in its own state it may need more than this
	case started.IsZero() && deletionIsFinal(facts.pod):
		// Deleted before its kubelet, which is alive, had started it. A start may still be on its way to the API server.
		if wait := facts.pod.DeletionTimestamp.Add(facts.nodeGrace).Sub(facts.now); wait > 0 {
			p.lookAgain = wait
			return
		}
		p.commands = append(p.commands, end(key, time.Time{}, time.Time{}, reasonNeverHeld, false))
		p.removeFinalizer = true
	case held.Ended:
		// The node is alive, and its kubelet or its agent may still be about to report what is missing.
		vouched := latest(held.End, facts.lastMetered, started)
		if wait := vouched.Add(facts.nodeGrace).Sub(facts.now); wait > 0 {
			p.lookAgain = wait
			return
		}
		p.commands = append(p.commands, end(key, started, vouched, reasonFinishUnknown, true))
		p.removeFinalizer = true
	}
}

// decideGone: there is no object left to read, only what was seen and metered.
func decideGone(key PodKey, facts podFacts) plan {
	p := plan{}
	if facts.allocation == nil || !facts.allocation.Open() {
		return p
	}
	allocation := *facts.allocation
	if allocation.State == ledger.AllocationIntended {
		p.commands = append(p.commands, release(key, allocation, reasonPodGone))
		return p
	}
	started, seen := allocation.StartedAt, facts.sight
	if started.IsZero() && seen != nil {
		started = seen.held.Start
	}
	if seen != nil && seen.held.Ended && !seen.held.EndUnknown && !seen.held.End.IsZero() {
		p.commands = append(p.commands, end(key, started, seen.held.End, reasonEnded, false))
		return p
	}
	vouched := latest(allocation.LastSeen, facts.lastMetered)
	if facts.node.lost(facts.now, facts.nodeGrace) || facts.node.silent(facts.now, facts.nodeGrace) {
		vouched = latest(vouched, facts.node.lastRenewal)
	} else if seen.live() {
		vouched = latest(vouched, seen.at)
	}
	vouched = latest(vouched, started)
	// Its agent may still be about to report the rest.
	if wait := vouched.Add(facts.nodeGrace).Sub(facts.now); wait > 0 {
		p.lookAgain = wait
		return p
	}
	p.commands = append(p.commands, end(key, started, vouched, reasonPodGone, true))
	return p
}

// deletionIsFinal reports whether the pod was deleted without, or past, its grace period: by its kubelet when it was done
// with the pod, or by force.
func deletionIsFinal(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil && pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0
}

func release(key PodKey, allocation ledger.Allocation, reason string) ledger.ReleaseAllocation {
	// The same pod may be intended, released and intended again, so the intent is part of the key.
	return ledger.ReleaseAllocation{
		Key:    fmt.Sprintf("release:%s:%d", key.UID, allocation.IntendedAt.UnixMicro()),
		PodUID: key.UID, Reason: reason,
	}
}

func end(key PodKey, started, ended time.Time, reason string, unknown bool) ledger.EndAllocation {
	return ledger.EndAllocation{
		Key: "end:" + key.UID, PodUID: key.UID, StartedAt: started, EndedAt: ended, Reason: reason, EndUnknown: unknown,
	}
}

// lateAllocate makes an allocation for a pod that runs already: under the reservation that covers it, else under one
// of its own. Its hold is what the webhook would have held; where even that cannot be told, one second, which usage then
// extends (I9).
func lateAllocate(key PodKey, facts podFacts) ledger.Allocate {
	pod := facts.pod
	command := ledger.Allocate{
		Key:    fmt.Sprintf("allocate:%s:%s:%d", key.UID, pod.Spec.NodeName, facts.cover.leaderEpoch),
		PodUID: key.UID, Pod: ledger.WorkloadRef{Kind: "Pod", Namespace: key.Namespace, Name: key.Name},
		Node: pod.Spec.NodeName, GPUs: facts.demand.GPUs,
		Leader: leadership, LeaderEpoch: facts.cover.leaderEpoch, AlreadyRunning: true,
	}
	if reservation := facts.cover.reservation; reservation != nil {
		command.Reservation, command.Account, command.Class = reservation.UID, reservation.Account, reservation.Class
		return command
	}
	hold, err := workload.PodHold(pod, facts.enrolment.account, facts.demand, facts.enrolment.defaultMaxRuntime)
	if err != nil {
		hold = ledger.PlaceHold{
			Key: "hold:" + key.UID, UID: key.UID, Account: facts.enrolment.account, Class: facts.demand.Class,
			Workload: command.Pod, MaxGPUs: facts.demand.GPUs, GPUSeconds: facts.demand.GPUs,
		}
	}
	command.Reservation, command.Account, command.Class, command.Hold = hold.UID, hold.Account, hold.Class, &hold
	return command
}

// asksForGPU reports whether any of the pod's containers names a GPU, priced or not.
func asksForGPU(spec *corev1.PodSpec) bool {
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			for _, list := range []corev1.ResourceList{containers[i].Resources.Limits, containers[i].Resources.Requests} {
				for name := range list {
					if workload.LooksLikeGPU(string(name)) {
						return true
					}
				}
			}
		}
	}
	return false
}
