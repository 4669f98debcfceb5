package webhook

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/workload"
)

// Later turns what DecideJob or DecidePod would hold now into what will be held later, where the account's policy says so; else it returns
// the decision as it is. Only a Job that waits for Kueue is held at admission: whatever else runs of such an account is held now.
func Later(moment ledger.HoldMoment, facts Facts, object any, decided Decision) Decision {
	job, ok := object.(*batchv1.Job)
	switch {
	case moment == ledger.HoldAtPlacement || bringsHold(object):
		return EachPodsHold(facts, object, decided)
	case moment == ledger.HoldAtAdmission && ok && workload.WaitsForKueue(job):
		decided.Code, decided.Hold.Later = AtAdmission, AtAdmission
	}
	return decided
}

// bringsHold reports whether a workload is held when it is placed, whatever the account's policy: a pod of a PodGroup, which the scheduler
// has to place and pay for together with the others or not at all. Held one by one at creation, part of a group would keep credits from
// others while the rest is refused.
func bringsHold(object any) bool {
	pod, ok := object.(*corev1.Pod)
	return ok && workload.GroupOf(pod).HasPodGroup()
}

// EachPodsHold turns what DecideJob or DecidePod would hold into what one of the workload's pods will bring when it is placed, for
// an account that holds then. A pod that could not be priced then is refused now.
func EachPodsHold(facts Facts, object any, decided Decision) Decision {
	job, ok := object.(*batchv1.Job)
	if !ok {
		decided.Code, decided.Hold.Later = AtPlacement, AtPlacement
		return decided
	}
	template := &job.Spec.Template
	pod := &corev1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: template.Spec}
	pod.Namespace, pod.Name, pod.UID = job.Namespace, job.Name, job.UID
	command, err := workload.PodHold(pod, facts.AccountName, decided.Hold.Demand, workload.DefaultMaxRuntime(facts.Account))
	if err != nil {
		return deny(BadTerms, "spec.template.%v", err)
	}
	terms, err := workload.PodTerms(pod, decided.Hold.Demand, workload.DefaultMaxRuntime(facts.Account))
	if err != nil {
		return deny(BadTerms, "spec.template.%v", err)
	}
	return Decision{Code: AtPlacement, Hold: &Hold{Command: command, Demand: decided.Hold.Demand, Terms: terms, Subject: "each pod of this Job", Later: AtPlacement}}
}

// tightest is the account at or above a workload's own whose spending limit is least; its Spending is zero where none has one.
type tightest struct {
	account  string
	spending ledger.SpendingLimit
}

// DecideLater decides about a workload that is held later, from what the ledger would say to that hold now. What may yet change, such as a balance or what is left of a limit, is told and refuses nothing; what it
// needs beyond a limit as a whole it could never have.
func DecideLater(hold *Hold, verdict ledger.Verdict, limit tightest, dryRun bool) (Decision, []string) {
	refusal := verdict.Refusal
	switch {
	case refusal == nil && dryRun && verdict.Reservation != nil:
		return allow(hold.Later), []string{quoteLater(hold, verdict.Reservation.Amount)}
	case refusal == nil:
		return allow(hold.Later), nil
	case limit.spending.Amount > 0 && refusal.Needed > limit.spending.Amount:
		return deny(Code(ledger.SpendingLimited), "%s", explainNever(refusal.Needed, limit, hold)), nil
	case refusal.Code == ledger.SpendingLimited, refusal.Code == ledger.InsufficientCredits, refusal.Code == ledger.AccountFrozen:
		return allow(hold.Later), []string{"gpubank: admitted, and would wait if it were to be " + laterWord(hold) + " now: " + explainRefusal(refusal, hold)}
	}
	return deny(Code(refusal.Code), "%s", explainRefusal(refusal, hold)), nil
}
