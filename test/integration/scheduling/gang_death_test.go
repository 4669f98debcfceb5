package scheduling_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
)

// A pod of a running gang that is deleted is replaced by itself: the others go on, and each attempt has its own allocation.
func testGangReplacement(t *testing.T, g *gangs) {
	g.enrol(t, "replaced", "100000")
	job := gangJob("replaced", "train", 4, 4, 600)
	must(t, g.admin.Create(t.Context(), job))
	pods := g.gangOf(t, "replaced", "train", 4)
	uids := map[types.UID]bool{}
	for _, pod := range pods {
		g.bound(t, pod)
		uids[pod.UID] = true
	}
	must(t, g.admin.Delete(t.Context(), pods[0]))
	var replacement *corev1.Pod
	eventually(t, func(context.Context) string {
		for _, pod := range g.podsOf(t, "replaced", "train") {
			if !uids[pod.UID] {
				replacement = pod
				return ""
			}
		}
		return "no new pod"
	})
	g.bound(t, replacement)
	for _, pod := range pods[1:] {
		g.bound(t, pod)
	}
	g.removeJob(t, job)
	g.holdsNothing(t, "replaced")
}

// Where the policy says so, the death of one member restarts all: the controller deletes the others and says so on each, their attempts are
// ended, and those that their owner, here the test, makes anew are a gang again.
func testGangTogether(t *testing.T, g *gangs) {
	g.enrol(t, "together", "100000")
	group := minMember("together", "mpi", 4)
	group.Annotations = map[string]string{v1alpha1.GangRestartAnnotation: v1alpha1.GangRestartTogether}
	must(t, g.admin.Create(t.Context(), group))
	pods := groupPods("together", "mpi", 4, 4, 600, coscheduled("mpi"))
	g.create(t, pods...)
	for _, pod := range pods {
		g.bound(t, pod)
	}
	for _, pod := range pods {
		eventually(t, func(ctx context.Context) string {
			row, _, err := g.ledger.Allocation(ctx, string(pod.UID))
			if err != nil || row.StartedAt.IsZero() {
				return fmt.Sprintf("pod %s has not started: %+v, %v", pod.Name, row, err)
			}
			return ""
		})
	}
	must(t, g.admin.Delete(t.Context(), pods[0]))
	for _, pod := range pods {
		eventually(t, func(ctx context.Context) string {
			if err := g.admin.Get(ctx, client.ObjectKeyFromObject(pod), pod.DeepCopy()); !apierrors.IsNotFound(err) {
				return fmt.Sprintf("pod %s is still there: %v", pod.Name, err)
			}
			row, found, err := g.ledger.Allocation(ctx, string(pod.UID))
			if err != nil || !found || row.State != ledger.AllocationEnded {
				return fmt.Sprintf("%v %v %+v", err, found, row)
			}
			return ""
		})
	}
	eventually(t, func(ctx context.Context) string {
		var events corev1.EventList
		must(t, g.admin.List(ctx, &events, client.InNamespace("together")))
		told := map[types.UID]bool{}
		for _, event := range events.Items {
			if event.Reason == "GangRestarted" {
				told[event.InvolvedObject.UID] = true
			}
		}
		if len(told) != 3 || told[pods[0].UID] {
			return fmt.Sprintf("%d members were told that they are restarted", len(told))
		}
		return ""
	})
	anew := groupPods("together", "mpi", 4, 4, 600, coscheduled("mpi"))
	g.create(t, anew...)
	for _, pod := range anew {
		g.bound(t, pod)
	}
	g.together(t, anew)
	g.remove(t, anew...)
	g.holdsNothing(t, "together")
}

// The scheduler is killed when the gang is committed and no member is bound. The next one binds all; each has one allocation.
func testGangKilled(t *testing.T, g *gangs) {
	g.enrol(t, "killed", "100000")
	g.arm(t, "scheduler.after-allocate=kill")
	job := gangJob("killed", "train", 8, 2, 600)
	must(t, g.admin.Create(t.Context(), job))
	pods := g.gangOf(t, "killed", "train", 8)
	select {
	case <-g.Scheduler.Exited():
	case <-time.After(patience):
		t.Fatal("the scheduler was not killed by its failpoint")
	}
	g.together(t, pods)
	for _, pod := range pods {
		row, _, err := g.ledger.Allocation(t.Context(), string(pod.UID))
		must(t, err)
		if row.State != ledger.AllocationIntended {
			t.Errorf("pod %s is %s", pod.Name, row.State)
		}
	}
	if bound := g.boundCount(t, pods); bound != 0 {
		t.Errorf("%d pods are bound", bound)
	}
	g.arm(t, "")
	must(t, g.Scheduler.Start(t.Context()))
	for _, pod := range pods {
		g.bound(t, pod)
	}
	if row := g.account(t, "killed"); row.Held+row.Charged != 8*2*600*ledger.Credit {
		t.Errorf("%s are held and %s charged", ledger.DisplayCredits(row.Held), ledger.DisplayCredits(row.Charged))
	}
	g.removeJob(t, job)
	g.holdsNothing(t, "killed")
}
