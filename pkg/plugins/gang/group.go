package gang

import (
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/utils/ptr"
	coschedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/workload"
)

// Group is a gang as its own object describes it.
type Group struct {
	// Key is the same for all members, and no other gang's.
	Key string
	// Title names it to people: "Job team/train".
	Title string
	// Min is the least number of pods to be placed together; 0 for a group whose pods need not be together.
	Min int
	// Timeout is how long a round may collect; 0 for the plugin's own.
	Timeout time.Duration
	// Problem is why the group cannot be told, and what to do; empty if it can.
	Problem string
}

// upstreamGroup is a group of Kubernetes' own PodGroup.
func upstreamGroup(object *schedulingv1beta1.PodGroup) Group {
	g := Group{Title: "PodGroup " + object.Namespace + "/" + object.Name}
	if gang := object.Spec.SchedulingPolicy.Gang; gang != nil {
		g.Min = int(gang.MinCount)
	}
	return g
}

// coschedulingGroup is a group of scheduler-plugins' PodGroup.
func coschedulingGroup(object *coschedulingv1alpha1.PodGroup) Group {
	return Group{
		Title: "PodGroup " + object.Namespace + "/" + object.Name, Min: int(object.Spec.MinMember),
		Timeout: time.Duration(max(0, ptr.Deref(object.Spec.ScheduleTimeoutSeconds, 0))) * time.Second,
	}
}

// jobGroup is a Job's gang: the pods that it wants at once. ok is false for a Job that does not ask for one, or is over.
func jobGroup(job *batchv1.Job) (g Group, ok bool) {
	if job.Annotations[v1alpha1.GangAnnotation] != "true" {
		return Group{}, false
	}
	want := ptr.Deref(job.Spec.Parallelism, 1)
	if job.Spec.Completions != nil {
		want = min(want, *job.Spec.Completions-job.Status.Succeeded)
	}
	return Group{Title: "Job " + job.Namespace + "/" + job.Name, Min: int(max(0, want))}, true
}

// absent is a group whose object is not there.
func absent(r workload.Group, served bool) Group {
	api := map[workload.GroupKind]string{workload.UpstreamGroup: upstreamResource.GroupVersion().String(), workload.CoschedulingGroup: coschedulingResource.GroupVersion().String()}[r.Kind]
	if !served {
		return Group{Problem: fmt.Sprintf(
			"the pod belongs to PodGroup %s of %s, an API that this cluster does not serve; install it, or make the pod without its group", r.Name, api)}
	}
	return Group{Problem: fmt.Sprintf("PodGroup %s/%s (%s), to which the pod belongs, does not exist; create it", r.Namespace, r.Name, api)}
}
