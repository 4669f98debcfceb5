package creditreservation

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/workload"
)

// facts are what memory knows about a pod that wants to be placed.
type facts struct {
	namespace string
	// accountLabel is the namespace's gpubank.io/account, empty if it has none.
	accountLabel string
	account      *v1alpha1.CreditAccount // nil if there is no such account
	demand       workload.Demand
	demandErr    error
}

// judgement is what may be done with the pod without asking the ledger.
type judgement struct {
	// skip: no GPUs, none of our business.
	skip bool
	// refusal is why it cannot be placed, beginning with the reason word; empty if it can be asked for.
	refusal string
}

// judge decides whether a pod may be placed at all. A GPU pod that no account pays for is never placed.
func judge(f facts) judgement {
	if f.demandErr == nil && f.demand.IsZero() {
		return judgement{skip: true}
	}
	switch {
	case f.accountLabel == "":
		return judgement{refusal: fmt.Sprintf(
			"Credit: namespace %s is not enrolled, so nobody pays for its GPUs; label it %s=<account> and list it in that account's spec.namespaces",
			f.namespace, v1alpha1.AccountLabel)}
	case f.account == nil:
		return judgement{refusal: fmt.Sprintf("Credit: namespace %s is to be paid for by account %s, which does not exist; create the CreditAccount or correct the label %s",
			f.namespace, f.accountLabel, v1alpha1.AccountLabel)}
	case !slices.Contains(f.account.Spec.Namespaces, f.namespace):
		return judgement{refusal: fmt.Sprintf("Credit: account %s does not list namespace %s; add it to the account's spec.namespaces or correct the label %s",
			f.account.Name, f.namespace, v1alpha1.AccountLabel)}
	case f.demandErr != nil:
		return judgement{refusal: "Credit: " + f.demandErr.Error()}
	}
	return judgement{}
}

// gather reads the facts from the watches' memory.
func (pl *CreditReservation) gather(pod *corev1.Pod) facts {
	f := facts{namespace: pod.Namespace}
	f.demand, f.demandErr = workload.DemandOf(&pod.Spec, pod.Labels, pl.catalog.Classes())
	if namespace, err := pl.namespaces.Get(pod.Namespace); err == nil {
		f.accountLabel = namespace.Labels[v1alpha1.AccountLabel]
	}
	if f.accountLabel != "" {
		f.account = pl.catalog.Account(f.accountLabel)
	}
	return f
}
