package scheduling_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpubank/gpubank/api/v1alpha1"
)

// boundOne waits until one of the pods is bound that was not, and returns it.
func (s *suite) boundOne(t *testing.T, pods ...*corev1.Pod) *corev1.Pod {
	t.Helper()
	var found *corev1.Pod
	eventually(t, func(ctx context.Context) string {
		var said []string
		for _, pod := range pods {
			if err := s.admin.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
				return err.Error()
			}
			if pod.Spec.NodeName != "" {
				found = pod
				return ""
			}
			said = append(said, pod.Name+": "+unscheduled(pod))
		}
		return strings.Join(said, "; ")
	})
	return found
}

// Two accounts contest what becomes free: the one that holds less is next, whoever came first, and the waiting one says so.
func testOrderByShare(t *testing.T, s *suite) {
	s.enrol(t, "first", "1000000")
	s.enrol(t, "second", "1000000")
	running := []*corev1.Pod{gpuPod("first", "r-0", 8, 600), gpuPod("first", "r-1", 8, 600)}
	s.create(t, running...)
	for _, pod := range running {
		s.bound(t, pod)
	}
	older := []*corev1.Pod{gpuPod("first", "w-0", 8, 600), gpuPod("first", "w-1", 8, 600)}
	s.create(t, older...)
	younger := []*corev1.Pod{gpuPod("second", "w-0", 8, 600), gpuPod("second", "w-1", 8, 600)}
	s.create(t, younger...)
	// One of them is tried, and fits nowhere; the other waits for the turn of its kind.
	eventually(t, func(ctx context.Context) string {
		words := ""
		for _, pod := range older {
			if err := s.admin.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
				return err.Error()
			}
			words += unscheduled(pod) + "; "
		}
		if !strings.Contains(words, "Placement: 8 GPUs") || !strings.Contains(words, "Turn: another pod of account first that asks for the same") {
			return words
		}
		return ""
	})
	all := append(append([]*corev1.Pod{}, older...), younger...)
	s.remove(t, running[0])
	if pod := s.boundOne(t, all...); pod.Namespace != "second" {
		t.Errorf("of what became free first, %s got 8 GPUs, which holds 8 already", pod.Namespace)
	} else {
		all = without(all, pod)
		running = append(running, pod)
	}
	// Now first holds 8 and second 8; when first's end, it holds none.
	s.remove(t, running[1])
	if pod := s.boundOne(t, all...); pod.Namespace != "first" {
		t.Errorf("of what became free next, %s got 8 GPUs, which holds 8 already", pod.Namespace)
	}
	s.remove(t, append(append(running, older...), younger...)...)
}

func without(pods []*corev1.Pod, pod *corev1.Pod) []*corev1.Pod {
	var rest []*corev1.Pod
	for _, each := range pods {
		if each != pod {
			rest = append(rest, each)
		}
	}
	return rest
}

// A limit holds pods back with its numbers, and lets them go on when it is raised (quota is never placement: GPUs are free all the time).
func testQuota(t *testing.T, s *suite) {
	s.enrol(t, "limited", "1000000")
	s.limit(t, "limited", v1alpha1.GPULimit{Class: "h100", Guaranteed: 2, Borrowable: 2})
	pods := []*corev1.Pod{gpuPod("limited", "a", 2, 600), gpuPod("limited", "b", 2, 600)}
	s.create(t, pods...)
	for _, pod := range pods {
		s.bound(t, pod)
	}
	third := gpuPod("limited", "c", 2, 600)
	s.create(t, third)
	s.waitsFor(t, third, startsWith("Quota: needs 2 GPUs of class h100, account limited may use 4 at once (2 guaranteed and 2 borrowable) and 4 are in use"))
	if row := s.account(t, "limited"); row.Reserved != 2400*1_000_000 {
		t.Errorf("reserved is %d: a pod that a limit holds back must have no hold", row.Reserved)
	}
	s.limit(t, "limited", v1alpha1.GPULimit{Class: "h100", Guaranteed: 2, Borrowable: 4})
	s.bound(t, third)
	s.remove(t, append(pods, third)...)
}

// limit sets an account's GPU limits.
func (s *suite) limit(t *testing.T, name string, limits ...v1alpha1.GPULimit) {
	t.Helper()
	eventually(t, func(ctx context.Context) string {
		account := &v1alpha1.CreditAccount{}
		if err := s.admin.Get(ctx, client.ObjectKey{Name: name}, account); err != nil {
			return err.Error()
		}
		account.Spec.Policy.GPUs = limits
		return said(s.admin.Update(ctx, account))
	})
}

// A thousand pods of one account do not delay another account's.
func testThousandPods(t *testing.T, s *suite) {
	s.enrol(t, "thousand", "100000000")
	s.enrol(t, "single", "1000000")
	running := []*corev1.Pod{gpuPod("thousand", "r-0", 8, 600), gpuPod("thousand", "r-1", 8, 600)}
	s.create(t, running...)
	for _, pod := range running {
		s.bound(t, pod)
	}
	var creating sync.WaitGroup
	for worker := range 8 {
		creating.Go(func() {
			for i := range 125 {
				if err := s.admin.Create(t.Context(), gpuPod("thousand", fmt.Sprintf("w-%d-%d", worker, i), 8, 600)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	creating.Wait()
	single := gpuPod("single", "p", 8, 600)
	s.create(t, single)
	s.waitsFor(t, single, contains("Placement: 8 GPUs"))
	s.remove(t, running[0])
	s.bound(t, single)
	must(t, s.admin.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace("thousand"), client.GracePeriodSeconds(0)))
	eventually(t, func(ctx context.Context) string {
		var left corev1.PodList
		if err := s.admin.List(ctx, &left, client.InNamespace("thousand")); err != nil || len(left.Items) > 0 {
			return fmt.Sprintf("%d pods are left: %v", len(left.Items), err)
		}
		return ""
	})
	s.remove(t, single)
}

// A restart changes no order: what was used before it still counts, as does what runs, and everything that waits is placed in the end.
func testRestartChangesNoOrder(t *testing.T, s *suite) {
	ctx := t.Context()
	s.enrol(t, "used", "1000000")
	s.enrol(t, "fresh", "1000000")
	s.enrol(t, "filler", "1000000")
	before := gpuPod("used", "before", 8, 600)
	s.create(t, before)
	s.bound(t, before)
	s.running(t, before)
	s.remove(t, before)
	eventually(t, func(ctx context.Context) string { // its use is in the ledger once the controller has settled it
		allocation, found, err := s.ledger.Allocation(ctx, string(before.UID))
		if err != nil || !found || allocation.Open() {
			return fmt.Sprintf("%v %v %+v", err, found, allocation)
		}
		return ""
	})
	fillers := []*corev1.Pod{gpuPod("filler", "a", 8, 600), gpuPod("filler", "b", 8, 600)}
	s.create(t, fillers...)
	for _, pod := range fillers {
		s.bound(t, pod)
	}
	older, younger := gpuPod("used", "older", 8, 600), gpuPod("fresh", "younger", 8, 600)
	s.create(t, older)
	s.waitsFor(t, older, contains("Placement: 8 GPUs"))
	s.create(t, younger)
	s.waitsFor(t, younger, contains("Placement: 8 GPUs"))

	must(t, s.Scheduler.Kill())
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: "gpubank-scheduler"}}
	must(t, s.admin.Delete(ctx, lease)) // it would lead for ten minutes
	s.remove(t, fillers[0])
	must(t, s.Scheduler.Start(ctx))
	if pod := s.boundOne(t, older, younger); pod != younger {
		t.Errorf("after a restart pod %s of the account that had used GPUs before went first", pod.Name)
	}
	s.remove(t, fillers[1])
	s.bound(t, older)
	s.remove(t, older, younger)
}

// running waits until a pod runs, so that it has used something.
func (s *suite) running(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	eventually(t, func(ctx context.Context) string {
		if err := s.admin.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil || pod.Status.Phase != corev1.PodRunning {
			return fmt.Sprintf("pod %s is %s: %v", pod.Name, pod.Status.Phase, err)
		}
		return ""
	})
}
