package workload

import (
	corev1 "k8s.io/api/core/v1"
	coschedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
)

// GroupKind is where a pod's group is described.
type GroupKind int

const (
	// NoGroup: the pod is in none.
	NoGroup GroupKind = iota
	// UpstreamGroup: Kubernetes' own PodGroup (scheduling.k8s.io).
	UpstreamGroup
	// CoschedulingGroup: the PodGroup of scheduler-plugins (scheduling.x-k8s.io).
	CoschedulingGroup
	// JobGroup: a Job, which may or may not ask for its pods to be placed together.
	JobGroup
)

// Group is what a pod says of the group that it belongs to. It is the author's claim; what it names is in the pod's own namespace.
type Group struct {
	Kind            GroupKind
	Namespace, Name string
	UID             string // of a Job
}

// GroupOf reads a pod's group. Kubernetes' own field comes before scheduler-plugins' label, and both before a Job.
func GroupOf(pod *corev1.Pod) Group {
	g := Group{Namespace: pod.Namespace}
	if group := pod.Spec.SchedulingGroup; group != nil && group.PodGroupName != nil {
		g.Kind, g.Name = UpstreamGroup, *group.PodGroupName
		return g
	}
	if name := pod.Labels[coschedulingv1alpha1.PodGroupLabel]; name != "" {
		g.Kind, g.Name = CoschedulingGroup, name
		return g
	}
	if job, ok := JobOwner(pod); ok {
		g.Kind, g.Name, g.UID = JobGroup, job.Name, string(job.UID)
	}
	return g
}

// HasPodGroup reports whether a PodGroup of either kind describes it.
func (g Group) HasPodGroup() bool { return g.Kind == UpstreamGroup || g.Kind == CoschedulingGroup }

// Key is the same for all pods of a group, and no other's; empty for none.
func (g Group) Key() string {
	switch g.Kind {
	case UpstreamGroup:
		return "podgroups.scheduling.k8s.io/" + g.Namespace + "/" + g.Name
	case CoschedulingGroup:
		return "podgroups.scheduling.x-k8s.io/" + g.Namespace + "/" + g.Name
	case JobGroup:
		return "jobs.batch/" + g.Namespace + "/" + g.Name + "/" + g.UID
	}
	return ""
}
