package scheduling_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
)

// rival is a second scheduler's name.
const rival = "gpubank-scheduler-rival"

func TestScheduling(t *testing.T) {
	s := newSuite(t)
	for name, test := range map[string]func(*testing.T, *suite){
		"best fit":          testBestFit,
		"too few credits":   testTooFewCredits,
		"not enrolled":      testNotEnrolled,
		"Job without hold":  testJobWithoutHold,
		"no bound":          testNoBound,
		"database away":     testDatabaseAway,
		"database paused":   testDatabasePaused,
		"no node is large":  testPlacement,
		"pods without GPUs": testWithoutGPUs,
		"order by share":    testOrderByShare,
		"quota":             testQuota,
		"thousand pods":     testThousandPods,
		"restart":           testRestartChangesNoOrder,
	} {
		t.Run(name, func(t *testing.T) { test(t, s); s.audit(t) })
	}
	// Last: the first scheduler does not survive it.
	t.Run("two schedulers", func(t *testing.T) { testTwoSchedulers(t, s); s.audit(t) })
}

// Small pods gather on one node, and the other stays whole.
func testBestFit(t *testing.T, s *suite) {
	s.enrol(t, "best-fit", "100000")
	first := gpuPod("best-fit", "first", 3, 600)
	s.create(t, first)
	node := s.bound(t, first)
	pods := []*corev1.Pod{first}
	for i, gpus := range []int64{2, 1, 2} {
		pod := gpuPod("best-fit", fmt.Sprintf("next-%d", i), gpus, 600)
		s.create(t, pod)
		if got := s.bound(t, pod); got != node {
			t.Errorf("%s went to %s although %s is fuller and fits it", pod.Name, got, node)
		}
		pods = append(pods, pod)
	}
	whole := gpuPod("best-fit", "whole", 8, 600)
	s.create(t, whole)
	if got := s.bound(t, whole); got == node {
		t.Errorf("a pod of 8 GPUs is on %s, where other pods are", got)
	}
	s.remove(t, append(pods, whole)...)
}

// Of two pods that together exceed the balance one waits, says why with the numbers, and is placed after a grant.
func testTooFewCredits(t *testing.T, s *suite) {
	s.enrol(t, "few", "1000")
	pods := []*corev1.Pod{gpuPod("few", "a", 4, 200), gpuPod("few", "b", 4, 200)} // 800 credits each
	s.create(t, pods...)
	var waiting, placed *corev1.Pod
	eventually(t, func(ctx context.Context) string {
		waiting, placed = nil, nil
		for _, pod := range pods {
			if err := s.admin.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
				return err.Error()
			}
			switch {
			case pod.Spec.NodeName != "":
				placed = pod
			case strings.HasPrefix(unscheduled(pod), "Credit: needs 800 credits, 200 available"):
				waiting = pod
			}
		}
		if waiting == nil || placed == nil {
			return fmt.Sprintf("bound %v; a says %q, b says %q", placed != nil, unscheduled(pods[0]), unscheduled(pods[1]))
		}
		return ""
	})
	if row := s.account(t, "few"); row.Reserved != 800*ledger.Credit {
		t.Errorf("reserved is %d", row.Reserved)
	}
	s.grant(t, "few", "600")
	s.bound(t, waiting)
	s.remove(t, pods...)
}

// Nobody pays, nothing runs; once both sides agree it is placed by itself.
func testNotEnrolled(t *testing.T, s *suite) {
	ctx := t.Context()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "stranger"}}
	must(t, s.admin.Create(ctx, namespace))
	s.defaultServiceAccount(t, "stranger")
	pod := gpuPod("stranger", "free", 1, 600)
	s.create(t, pod)
	if message := s.waitsFor(t, pod, contains("Credit: namespace stranger is not enrolled")); strings.Contains(message, "not found") {
		t.Errorf("another plugin missed its turn: %s", message)
	}

	namespace.Labels = map[string]string{v1alpha1.AccountLabel: "payer"}
	must(t, s.admin.Update(ctx, namespace))
	account := &v1alpha1.CreditAccount{ObjectMeta: metav1.ObjectMeta{Name: "payer"}}
	must(t, s.admin.Create(ctx, account))
	s.grant(t, "payer", "600")
	eventually(t, func(ctx context.Context) string {
		if err := s.admin.Get(ctx, client.ObjectKeyFromObject(account), account); err != nil {
			return err.Error()
		}
		account.Spec.Namespaces = []string{"stranger"}
		return said(s.admin.Update(ctx, account))
	})
	s.bound(t, pod)
	s.remove(t, pod)
}

// A Job that was created while the webhook was away has no hold: each of its pods places its own, and the Job's name gains nothing.
func testJobWithoutHold(t *testing.T, s *suite) {
	ctx := t.Context()
	s.enrol(t, "unheld", "700")
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "unheld", Name: "j"}, Spec: batchv1.JobSpec{
		Template: corev1.PodTemplateSpec{Spec: gpuSpec(1, 600)},
	}}
	must(t, s.admin.Create(ctx, job))
	var pods corev1.PodList
	eventually(t, func(ctx context.Context) string {
		if err := s.admin.List(ctx, &pods, client.InNamespace("unheld")); err != nil || len(pods.Items) != 1 {
			return fmt.Sprintf("%d pods, %v", len(pods.Items), err)
		}
		return ""
	})
	pod := &pods.Items[0]
	s.bound(t, pod)
	reservation, found, err := s.ledger.Reservation(ctx, string(pod.UID))
	must(t, err)
	if !found || reservation.Amount != 600*ledger.Credit {
		t.Errorf("the pod's own reservation: %v %+v", found, reservation)
	}
	must(t, s.admin.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationForeground)))
	s.remove(t, pod)
}

// A pod without any bound is told to set one.
func testNoBound(t *testing.T, s *suite) {
	s.enrol(t, "boundless", "1000")
	pod := gpuPod("boundless", "p", 1, 600)
	pod.Spec.ActiveDeadlineSeconds = nil
	s.create(t, pod)
	s.waitsFor(t, pod, func(message string) bool {
		return strings.HasPrefix(message, "Credit: ") && strings.Contains(message, v1alpha1.MaxRuntimeAnnotation)
	})
	s.remove(t, pod)
}

// While PostgreSQL is gone nothing is bound, every pod says so, and afterwards each is placed without anyone's help.
func testDatabaseAway(t *testing.T, s *suite) {
	s.enrol(t, "away", "10000")
	must(t, s.postgres.Stop())
	pods := []*corev1.Pod{gpuPod("away", "a", 1, 100), gpuPod("away", "b", 1, 100), gpuPod("away", "c", 1, 100)}
	s.create(t, pods...)
	for _, pod := range pods {
		s.waitsFor(t, pod, startsWith("Ledger: "))
	}
	must(t, s.postgres.Start(t.Context()))
	for _, pod := range pods {
		s.bound(t, pod)
	}
	s.remove(t, pods...)
}

// A PostgreSQL that accepts connections and does not answer is no different; what it had begun is one allocation.
func testDatabasePaused(t *testing.T, s *suite) {
	s.enrol(t, "paused", "10000")
	must(t, s.postgres.Pause())
	pod := gpuPod("paused", "a", 1, 100)
	s.create(t, pod)
	s.waitsFor(t, pod, startsWith("Ledger: "))
	must(t, s.postgres.Resume())
	s.bound(t, pod)
	s.remove(t, pod)
}

func testPlacement(t *testing.T, s *suite) {
	s.enrol(t, "large", "100000")
	pod := gpuPod("large", "p", 16, 100)
	s.create(t, pod)
	s.waitsFor(t, pod, contains("Placement: 16 GPUs of class h100 on one node; 16 free on 2 nodes, largest free block 8"))
	if row := s.account(t, "large"); row.Reserved != 0 {
		t.Errorf("a pod that fits nowhere reserves %d", row.Reserved)
	}
	s.remove(t, pod)
}

// Pods without GPUs are none of our business, whoever's they are.
func testWithoutGPUs(t *testing.T, s *suite) {
	must(t, s.admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "plain"}}))
	s.defaultServiceAccount(t, "plain")
	pod := gpuPod("plain", "p", 1, 100)
	pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
	s.create(t, pod)
	eventually(t, func(ctx context.Context) string {
		if err := s.admin.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil || pod.Spec.NodeName == "" {
			return fmt.Sprintf("not bound: %v %q", err, unscheduled(pod))
		}
		return ""
	})
	s.remove(t, pod)
}

// Two schedulers alive at once: the newer one's epoch is the ledger's, the older one is refused and exits, and no pod is held twice.
func testTwoSchedulers(t *testing.T, s *suite) {
	ctx := t.Context()
	s.enrol(t, "contested", "100000")
	before := gpuPod("contested", "before", 1, 600)
	s.create(t, before)
	s.bound(t, before) // the first scheduler's epoch
	first, _, err := s.ledger.Allocation(ctx, string(before.UID))
	must(t, err)

	second, err := s.NewScheduler(ctx, rival, func(configuration map[string]any) {
		patient("10s")(configuration)
		configuration["leaderElection"] = map[string]any{"leaderElect": false}
	})
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of %s:\n%s", rival, second.LogTail(40))
		}
		must(t, second.Kill())
	})
	must(t, second.Start(ctx))
	// While the first sleeps, the second places its first pod, and with it acquires the newer epoch.
	must(t, s.Scheduler.Pause())
	during := gpuPod("contested", "during", 1, 600)
	s.create(t, during)
	s.bound(t, during)
	newer, _, err := s.ledger.Allocation(ctx, string(during.UID))
	must(t, err)
	if newer.LeaderEpoch <= first.LeaderEpoch {
		t.Errorf("the second scheduler's epoch is %d, the first's %d", newer.LeaderEpoch, first.LeaderEpoch)
	}
	must(t, s.Scheduler.Resume())
	pods := []*corev1.Pod{before, during}
	for i := range 10 {
		pod := gpuPod("contested", fmt.Sprintf("p-%d", i), 1, 600)
		s.create(t, pod)
		pods = append(pods, pod)
	}
	for _, pod := range pods[2:] {
		s.bound(t, pod)
		if allocation, _, err := s.ledger.Allocation(ctx, string(pod.UID)); err != nil || allocation.LeaderEpoch != newer.LeaderEpoch {
			t.Errorf("pod %s: %v %+v", pod.Name, err, allocation)
		}
	}
	select {
	case <-s.Scheduler.Exited():
		if log := s.Scheduler.LogTail(100); !strings.Contains(log, "Another scheduler has acquired the leadership") {
			t.Errorf("the first scheduler exited for another reason:\n%s", log)
		}
	case <-second.Exited():
		t.Error("the scheduler with the newer epoch exited")
	case <-ctx.Done():
		t.Error("both schedulers go on")
	}
	allocations, err := s.ledger.OpenAllocations(ctx)
	must(t, err)
	open := 0
	for _, allocation := range allocations {
		if allocation.Account == "contested" {
			open++
		}
	}
	if open != len(pods) {
		t.Errorf("%d open allocations for %d pods", open, len(pods))
	}
	s.remove(t, pods...)
}

func unscheduled(pod *corev1.Pod) string {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return condition.Message
		}
	}
	return ""
}

func startsWith(words string) func(string) bool {
	return func(message string) bool { return strings.HasPrefix(message, words) }
}

func contains(words string) func(string) bool {
	return func(message string) bool { return strings.Contains(message, words) }
}
