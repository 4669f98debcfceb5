package fairqueue

import (
	"encoding/json"
	"hash/fnv"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/plugins/fairqueue/turn"
	"github.com/gpubank/gpubank/pkg/workload"
)

// managed is the pod as the queue knows it, but for its shape; false if it is none of the queue's: without GPUs, or nobody agrees to
// pay for them, which is creditreservation's to refuse.
func (d *desk) managed(pod *corev1.Pod) (turn.Pod, bool) {
	demand, err := workload.DemandOf(&pod.Spec, pod.Labels, d.catalog.Classes())
	if err != nil || demand.IsZero() {
		return turn.Pod{}, false
	}
	namespace, err := d.namespaces.Get(pod.Namespace)
	if err != nil {
		return turn.Pod{}, false
	}
	account := d.catalog.Account(namespace.Labels[v1alpha1.AccountLabel])
	if account == nil || !slices.Contains(account.Spec.Namespaces, pod.Namespace) {
		return turn.Pod{}, false
	}
	p := turn.Pod{
		UID: string(pod.UID), Account: account.Name, Class: demand.Class, GPUs: demand.GPUs,
		Created: pod.CreationTimestamp.Time, Floor: pod.Labels[v1alpha1.FloorLabel],
	}
	if d.groups != nil {
		p.Group = d.groups.Together(pod)
	}
	if pod.Spec.Priority != nil {
		p.Priority = *pod.Spec.Priority
	}
	return p, true
}

// accountsOf turns policies into what the queue knows of accounts.
func (d *desk) accountsOf(objects []*v1alpha1.CreditAccount) []turn.Account {
	all := make([]turn.Account, 0, len(objects))
	for _, object := range objects {
		policy := object.Spec.Policy
		share := policy.FairShare
		a := turn.Account{
			Name: object.Name, Parent: object.Spec.Parent, Weight: share.Weight,
			Aging: d.args.Aging.Duration, MaxWait: d.args.MaxWait.Duration,
		}
		if share.HalfLife != nil {
			a.HalfLife = share.HalfLife.Duration
		}
		if share.Aging != nil {
			a.Aging = share.Aging.Duration
		}
		if share.MaxWait != nil {
			a.MaxWait = share.MaxWait.Duration
		}
		if len(policy.GPUs) > 0 {
			a.Limits = make(map[string]turn.Limit, len(policy.GPUs))
			for _, limit := range policy.GPUs {
				a.Limits[limit.Class] = turn.Limit{Guaranteed: limit.Guaranteed, Borrowable: limit.Borrowable}
			}
		}
		for _, floor := range share.Floors {
			a.Floors = append(a.Floors, turn.Floor{Name: floor.Name, Class: floor.Class, GPUs: floor.GPUs})
		}
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b turn.Account) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return all
}

// constraints are what decides which nodes fit a pod.
type constraints struct {
	Requests     []corev1.ResourceRequirements
	Ports        []corev1.ContainerPort
	Overhead     corev1.ResourceList
	NodeSelector map[string]string
	NodeName     string
	Affinity     *corev1.Affinity
	Tolerations  []corev1.Toleration
	Spread       []corev1.TopologySpreadConstraint
	Claims       []corev1.PodResourceClaim
	Volumes      []corev1.Volume
	Labels       map[string]string
	Priority     *int32
	Profile      string
}

// shapeOf is the same for pods that fit the same nodes. It may differ for some that do, but seldom. Labels count only where the pod
// states rules that look at labels; a pod that others' rules keep away is found in time, see turn.Options.ShapeRetry.
func shapeOf(pod *corev1.Pod) uint64 {
	c := constraints{
		Overhead: pod.Spec.Overhead, NodeSelector: pod.Spec.NodeSelector, Affinity: pod.Spec.Affinity,
		Tolerations: pod.Spec.Tolerations, Spread: pod.Spec.TopologySpreadConstraints, Claims: pod.Spec.ResourceClaims,
		Priority: pod.Spec.Priority, Profile: pod.Spec.SchedulerName,
	}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, container := range containers {
			c.Requests = append(c.Requests, container.Resources)
			for _, port := range container.Ports {
				if port.HostPort != 0 {
					c.Ports = append(c.Ports, port)
				}
			}
		}
	}
	for _, volume := range pod.Spec.Volumes {
		if volume.PersistentVolumeClaim != nil || volume.Ephemeral != nil || volume.CSI != nil {
			c.Volumes = append(c.Volumes, volume)
		}
	}
	if c.Affinity != nil || len(c.Spread) > 0 {
		c.Labels = pod.Labels
	}
	text, err := json.Marshal(c) // with sorted keys
	if err != nil {
		panic("fairqueue: a pod that the API server sent cannot be written as JSON: " + err.Error())
	}
	hash := fnv.New64a()
	hash.Write(text)
	return hash.Sum64()
}

// finished reports whether the pod holds nothing any longer.
func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
