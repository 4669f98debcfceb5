package gang

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/gpubank/gpubank/api/v1alpha1"
)

// look is what a gang finds on the nodes of a snapshot.
type look struct {
	free    []amounts
	index   map[string]int // of a node, by its name
	shapes  []shape
	shapeOf map[types.UID]int
}

// look asks the filters for each shape of member once, on the nodes as they are. What members would mean for each other beyond resources
// (anti-affinity, spreading, ports) it leaves to the round itself.
func (pl *Gang) look(ctx context.Context, t tally, nodes []fwk.NodeInfo) (look, *fwk.Status) {
	l := look{free: make([]amounts, len(nodes)), index: make(map[string]int, len(nodes)), shapeOf: map[types.UID]int{}}
	for i, node := range nodes {
		l.free[i], l.index[node.Node().Name] = freeOn(node), i
	}
	byText := map[string]int{}
	for _, pod := range t.pending {
		text, err := shapeText(pod)
		if err != nil {
			return l, fwk.AsStatus(fmt.Errorf("compare pod %s/%s with the other members of its gang: %w", pod.Namespace, pod.Name, err))
		}
		i, known := byText[text]
		if !known {
			i = len(l.shapes)
			may, status := pl.filter(ctx, pod, nodes)
			if status != nil {
				return l, status
			}
			byText[text] = i
			l.shapes = append(l.shapes, shape{each: askedBy(pod), may: may})
		}
		l.shapes[i].members++
		l.shapeOf[pod.UID] = i
	}
	return l, nil
}

// shapeText is the same for pods that ask for the same and may go to the same nodes: all of the spec but what differs between a Job's pods.
func shapeText(pod *corev1.Pod) (string, error) {
	spec := pod.Spec.DeepCopy()
	spec.Hostname, spec.NodeName, spec.Volumes = "", "", withoutTokens(spec.Volumes)
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			c := &containers[i]
			*c = corev1.Container{Resources: c.Resources, Ports: c.Ports, RestartPolicy: c.RestartPolicy}
		}
	}
	text, err := json.Marshal(struct {
		Labels map[string]string
		Spec   *corev1.PodSpec
	}{classLabels(pod.Labels), spec})
	return string(text), err
}

// filter asks all filters of the profile where the pod may go. A plugin that refuses the pod wherever it might go is its status.
func (pl *Gang) filter(ctx context.Context, pod *corev1.Pod, nodes []fwk.NodeInfo) ([]bool, *fwk.Status) {
	profile := pl.handle.(framework.Framework)
	trial := framework.NewCycleState()
	trial.Write(trialKey, &membership{})
	only, status, _ := profile.RunPreFilterPlugins(ctx, trial, pod)
	if !status.IsSuccess() {
		return nil, status
	}
	may := make([]bool, len(nodes))
	var failed atomic.Pointer[fwk.Status]
	pl.handle.Parallelizer().Until(ctx, len(nodes), func(i int) {
		if only != nil && !only.AllNodes() && !only.NodeNames.Has(nodes[i].Node().Name) {
			return
		}
		status := profile.RunFilterPluginsWithNominatedPods(ctx, trial, pod, nodes[i])
		if status.Code() == fwk.Error {
			failed.Store(status)
		}
		may[i] = status.IsSuccess()
	}, "Gang")
	return may, failed.Load()
}

// doesNotFit says why, with the numbers.
func doesNotFit(g Group, t tally, placed int, shapes []shape) string {
	each := ""
	if len(shapes) == 1 {
		for _, name := range shapes[0].each.scarce() {
			each = fmt.Sprintf(" of %d %s each", shapes[0].each[name], name)
		}
	}
	return fmt.Sprintf("Gang: %d pods of %s%s have to be placed together; %d would find a node now", t.together, g.Title, each, placed)
}

// asks is what a gang that does not fit waits for.
func asks(g Group, t tally) Waiting {
	w := Waiting{Key: g.Key, Title: g.Title, Together: t.together, Each: amounts{}}
	for _, pod := range t.pending {
		for name, amount := range askedBy(pod) {
			w.Each[name] = max(w.Each[name], amount)
		}
		if pod.Spec.Priority != nil {
			w.Priority = max(w.Priority, *pod.Spec.Priority)
		}
	}
	return w
}

// withoutTokens leaves out projected volumes, such as each pod's own access token: they bind it to no node.
func withoutTokens(volumes []corev1.Volume) (kept []corev1.Volume) {
	for _, volume := range volumes {
		if volume.Projected == nil {
			kept = append(kept, volume)
		}
	}
	return kept
}

// classLabels are the labels that decide where a pod may go by itself.
func classLabels(labels map[string]string) map[string]string {
	if class, set := labels[v1alpha1.ClassLabel]; set {
		return map[string]string{v1alpha1.ClassLabel: class}
	}
	return nil
}
