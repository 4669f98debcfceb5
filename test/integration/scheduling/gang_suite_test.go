package scheduling_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	coschedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/test/cluster"
	"github.com/gpubank/gpubank/test/cluster/clustertest"
	"github.com/gpubank/gpubank/test/cluster/parts"
)

// gangs is a cluster that serves both kinds of PodGroup, whose scheduler can be killed at exact places.
type gangs struct {
	*suite
	failpoints string
}

// collectTimeout is short, so that a test can wait for it.
const collectTimeout = 4 * time.Second

func newGangs(t *testing.T) *gangs {
	cp := clustertest.OwnControlPlane(t, cluster.ControlPlaneOptions{
		APIServerArgs: []string{"--feature-gates=GenericWorkload=true", "--runtime-config=" + schedulingv1beta1.SchemeGroupVersion.String() + "=true"},
	})
	g := &gangs{failpoints: filepath.Join(cp.Dir, "failpoints")}
	installCoscheduling(t, cp)
	g.suite = newSuiteOn(t, cp, parts.Options{
		Tags: []string{"failpoints"}, Environment: []string{"GPUBANK_FAILPOINTS=" + g.failpoints},
		Arguments: map[string][]string{parts.Controller: {"--resync=2s"}},
	}, func(configuration map[string]any) {
		// Long enough for a busy machine, short enough to wait for when the scheduler is killed.
		lease := configuration["leaderElection"].(map[string]any)
		lease["leaseDuration"], lease["renewDeadline"] = "30s", "25s"
		profile := configuration["profiles"].([]any)[0].(map[string]any)
		for _, each := range profile["pluginConfig"].([]any) {
			if plugin := each.(map[string]any); plugin["name"] == "Gang" {
				plugin["args"] = map[string]any{"collectTimeout": collectTimeout.String(), "sweepPeriod": "200ms"}
			}
		}
	})
	must(t, coschedulingv1alpha1.AddToScheme(g.admin.Scheme()))
	return g
}

// arm sets the failpoints; none disarms all.
func (g *gangs) arm(t *testing.T, points string) {
	t.Helper()
	temporary := g.failpoints + ".new" // renamed into place, so that nobody reads half of it
	must(t, os.WriteFile(temporary, []byte(points+"\n"), 0o600))
	must(t, os.Rename(temporary, g.failpoints))
}

// gangJob is a Job of so many pods that go together.
func gangJob(namespace, name string, pods int32, gpus, seconds int64) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{v1alpha1.GangAnnotation: "true"}},
		Spec: batchv1.JobSpec{
			Parallelism: ptr.To(pods), Completions: ptr.To(pods), BackoffLimit: ptr.To[int32](10),
			Template: corev1.PodTemplateSpec{Spec: gpuSpec(gpus, seconds)},
		},
	}
}

// podsOf lists a Job's pods that are not being deleted.
func (g *gangs) podsOf(t *testing.T, namespace, job string) []*corev1.Pod {
	t.Helper()
	var list corev1.PodList
	must(t, g.admin.List(t.Context(), &list, client.InNamespace(namespace), client.MatchingLabels{batchv1.JobNameLabel: job}))
	var pods []*corev1.Pod
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp == nil {
			pods = append(pods, &list.Items[i])
		}
	}
	return pods
}

// gangOf waits until a Job has so many pods.
func (g *gangs) gangOf(t *testing.T, namespace, job string, count int) (pods []*corev1.Pod) {
	t.Helper()
	eventually(t, func(context.Context) string {
		if pods = g.podsOf(t, namespace, job); len(pods) != count {
			return fmt.Sprintf("Job %s has %d pods, not %d", job, len(pods), count)
		}
		return ""
	})
	return pods
}

// boundCount is how many of the pods are bound now.
func (g *gangs) boundCount(t *testing.T, pods []*corev1.Pod) (count int) {
	t.Helper()
	for _, pod := range pods {
		must(t, client.IgnoreNotFound(g.admin.Get(t.Context(), client.ObjectKeyFromObject(pod), pod)))
		if pod.Spec.NodeName != "" {
			count++
		}
	}
	return count
}

// removeJob deletes a Job and its pods, and waits until the GPUs are free.
func (g *gangs) removeJob(t *testing.T, jobs ...*batchv1.Job) {
	t.Helper()
	for _, job := range jobs {
		must(t, client.IgnoreNotFound(g.admin.Delete(t.Context(), job, client.PropagationPolicy(metav1.DeletePropagationBackground))))
		eventually(t, func(ctx context.Context) string {
			var list corev1.PodList
			if err := g.admin.List(ctx, &list, client.InNamespace(job.Namespace), client.MatchingLabels{batchv1.JobNameLabel: job.Name}); err != nil || len(list.Items) > 0 {
				return fmt.Sprintf("%d pods of %s are there, %v", len(list.Items), job.Name, err)
			}
			return ""
		})
	}
}

// holdsNothing waits until nothing of the account is reserved.
func (g *gangs) holdsNothing(t *testing.T, account string) {
	t.Helper()
	eventually(t, func(context.Context) string {
		if row := g.account(t, account); row.Reserved != 0 {
			return fmt.Sprintf("account %s has %s reserved", account, ledger.DisplayCredits(row.Reserved))
		}
		return ""
	})
}

// unknownToLedger checks that no pod was ever allocated.
func (g *gangs) unknownToLedger(t *testing.T, pods []*corev1.Pod) {
	t.Helper()
	for _, pod := range pods {
		if row, found, err := g.ledger.Allocation(t.Context(), string(pod.UID)); err != nil || found {
			t.Errorf("pod %s was not to be allocated, and the ledger has %+v, %v", pod.Name, row, err)
		}
	}
}

// together checks that one commit allocated all pods.
func (g *gangs) together(t *testing.T, pods []*corev1.Pod) {
	t.Helper()
	moments := map[time.Time]int{}
	for _, pod := range pods {
		row, found, err := g.ledger.Allocation(t.Context(), string(pod.UID))
		must(t, err)
		if !found {
			t.Fatalf("pod %s has no allocation", pod.Name)
		}
		moments[row.IntendedAt]++
	}
	if len(moments) != 1 {
		t.Errorf("the pods were allocated at %v, not in one commit", moments)
	}
}

// groupPods are pods of a group, made by nobody's controller.
func groupPods(namespace, group string, count int, gpus, seconds int64, join func(*corev1.Pod)) (pods []*corev1.Pod) {
	for i := range count {
		pod := gpuPod(namespace, fmt.Sprintf("%s-%d", group, i), gpus, seconds)
		join(pod)
		pods = append(pods, pod)
	}
	return pods
}

func coscheduled(group string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Labels = map[string]string{coschedulingv1alpha1.PodGroupLabel: group} }
}

func minMember(namespace, name string, pods int32) *coschedulingv1alpha1.PodGroup {
	return &coschedulingv1alpha1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: coschedulingv1alpha1.PodGroupSpec{MinMember: pods}}
}
