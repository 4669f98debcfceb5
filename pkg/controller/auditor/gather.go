package auditor

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/workload"
)

// gather asks all sides, the ledger first: a pod that is allocated after that is in its own side only, for a moment.
func (a *Auditor) gather(ctx context.Context) (sides, error) {
	open, err := a.options.Ledger.MeteredAllocations(ctx)
	if err != nil {
		return sides{}, err
	}
	classes := &v1alpha1.GPUClassList{}
	nodes := &corev1.NodeList{}
	namespaces := &corev1.NamespaceList{}
	accounts := &v1alpha1.CreditAccountList{}
	pods := &corev1.PodList{}
	for _, list := range []client.ObjectList{classes, nodes, namespaces, accounts, pods} {
		if err := a.options.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return sides{}, fmt.Errorf("list %T: %w", list, err)
		}
	}
	s := sides{open: open, pods: podSides(pods.Items, payers(namespaces.Items, accounts.Items), classes.Items), nodes: nodeSides(nodes.Items, classes.Items)}
	s.ended, err = a.ended(ctx, s)
	return s, err
}

// ended reads what the ledger has of pods that hold GPUs without an open allocation; they should be none.
func (a *Auditor) ended(ctx context.Context, s sides) (map[string]ledger.Allocation, error) {
	ended := make(map[string]ledger.Allocation)
	for _, d := range compareUnallocated(s) {
		allocation, known, err := a.options.Ledger.Allocation(ctx, d.PodUID)
		if err != nil {
			return nil, err
		}
		if known {
			ended[d.PodUID] = allocation
		}
	}
	return ended, nil
}

// payers are the accounts that pay for namespaces: label and account's list must agree.
func payers(namespaces []corev1.Namespace, accounts []v1alpha1.CreditAccount) map[string]string {
	lists := make(map[string][]string, len(accounts))
	for i := range accounts {
		lists[accounts[i].Name] = accounts[i].Spec.Namespaces
	}
	paid := make(map[string]string)
	for i := range namespaces {
		account := namespaces[i].Labels[v1alpha1.AccountLabel]
		if account != "" && slices.Contains(lists[account], namespaces[i].Name) {
			paid[namespaces[i].Name] = account
		}
	}
	return paid
}

func podSides(pods []corev1.Pod, payers map[string]string, classes []v1alpha1.GPUClass) map[string]podSide {
	found := make(map[string]podSide)
	for i := range pods {
		pod := &pods[i]
		demand, err := workload.DemandOf(&pod.Spec, pod.Labels, classes)
		if err == nil && demand.IsZero() {
			continue
		}
		held := workload.Held(pod)
		found[string(pod.UID)] = podSide{
			name: pod.Namespace + "/" + pod.Name, node: pod.Spec.NodeName, gpus: demand.GPUs,
			holds: pod.Spec.NodeName != "" && !held.Start.IsZero() && !held.Ended && err == nil,
			over:  held.Ended, startedAt: held.Start, overAt: held.End, account: payers[pod.Namespace],
		}
	}
	return found
}

// nodeSides count by capacity, not by what is allocatable: a GPU that has failed stays with the pod that has it.
func nodeSides(nodes []corev1.Node, classes []v1alpha1.GPUClass) map[string]nodeSide {
	found := make(map[string]nodeSide, len(nodes))
	for i := range nodes {
		side := nodeSide{gpus: make(map[string]int64)}
		for c := range classes {
			spec := &classes[c].Spec
			if !labels.SelectorFromSet(spec.NodeSelector).Matches(labels.Set(nodes[i].Labels)) {
				continue
			}
			for _, name := range spec.ResourceNames {
				quantity := nodes[i].Status.Capacity[corev1.ResourceName(name)]
				side.gpus[classes[c].Name] += quantity.Value()
			}
		}
		found[nodes[i].Name] = side
	}
	return found
}
