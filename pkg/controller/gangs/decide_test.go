package gangs

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

var start = time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)

func at(seconds int) metav1.Time {
	return metav1.Time{Time: start.Add(time.Duration(seconds) * time.Second)}
}

func running(name string, made int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: at(made)}, Spec: corev1.PodSpec{NodeName: "node-1"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: ptr.To(at(made))},
	}
}

func ended(pod *corev1.Pod, phase corev1.PodPhase, finish int) *corev1.Pod {
	pod.Status.Phase = phase
	pod.Spec.Containers = []corev1.Container{{Name: "main"}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{StartedAt: *pod.Status.StartTime, FinishedAt: at(finish)},
	}}}
	return pod
}

func deleted(pod *corev1.Pod, asked int, grace int64) *corev1.Pod {
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = ptr.To(at(asked+int(grace))), &grace
	return pod
}

func byUs(pod *corev1.Pod) *corev1.Pod {
	pod.Annotations = map[string]string{restartedAnnotation: "uid"}
	return pod
}

func waiting(name string, made int) *corev1.Pod {
	pod := running(name, made)
	pod.Spec.NodeName, pod.Status = "", corev1.PodStatus{Phase: corev1.PodPending}
	return pod
}

func TestDecideRestart(t *testing.T) {
	for _, each := range []struct {
		name string
		pods []*corev1.Pod
		want string
	}{
		{"all run", []*corev1.Pod{running("a", 0), running("b", 0)}, ""},
		{"one failed", []*corev1.Pod{ended(running("a", 0), corev1.PodFailed, 50), running("b", 0), running("c", 0)}, "b:a c:a"},
		{"one succeeded", []*corev1.Pod{ended(running("a", 0), corev1.PodSucceeded, 50), running("b", 0)}, ""},
		{"one was deleted by a person", []*corev1.Pod{deleted(running("a", 0), 50, 30), running("b", 0)}, "b:a"},
		{"a deletion while it waits for a node", []*corev1.Pod{deleted(waiting("a", 0), 50, 0), running("b", 0)}, ""},
		{"what we deleted is no death", []*corev1.Pod{byUs(deleted(running("a", 0), 50, 30)), running("b", 40)}, ""},
		{"what we deleted and then failed is none either", []*corev1.Pod{byUs(ended(deleted(running("a", 0), 50, 30), corev1.PodFailed, 60)), running("b", 40)}, ""},
		{"the new ones stay, though the failed one is kept", []*corev1.Pod{
			ended(running("a", 0), corev1.PodFailed, 50), byUs(deleted(running("b", 0), 51, 30)), running("a2", 55), waiting("b2", 56),
		}, ""},
		{"the grace period does not reach the new ones", []*corev1.Pod{deleted(running("a", 0), 50, 300), running("b", 0), waiting("a2", 51)}, "b:a"},
		{"a second death", []*corev1.Pod{ended(running("a", 0), corev1.PodFailed, 50), ended(running("a2", 55), corev1.PodFailed, 90), running("b2", 56)}, "b2:a2"},
		{"of two deaths the first is the reason", []*corev1.Pod{ended(running("a", 0), corev1.PodFailed, 60), ended(running("b", 0), corev1.PodFailed, 50), running("c", 0)}, "c:b"},
		{"a member that waits goes too", []*corev1.Pod{ended(running("a", 0), corev1.PodFailed, 50), waiting("b", 10)}, "b:a"},
		{"refused by its kubelet", []*corev1.Pod{func() *corev1.Pod {
			pod := running("a", 0)
			pod.Status.Phase, pod.Status.StartTime = corev1.PodFailed, nil
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: at(20)}}
			return pod
		}(), running("b", 10), running("c", 30)}, "b:a"},
	} {
		t.Run(each.name, func(t *testing.T) {
			var members []member
			for _, pod := range each.pods {
				members = append(members, memberOf(pod))
			}
			var got []string
			for _, one := range decideRestart(members) {
				got = append(got, one.pod.Name+":"+one.because.Name)
			}
			slices.Sort(got)
			if strings.Join(got, " ") != each.want {
				t.Errorf("restarted are %q, want %q", strings.Join(got, " "), each.want)
			}
		})
	}
}
