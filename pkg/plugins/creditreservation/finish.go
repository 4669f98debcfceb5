package creditreservation

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/gpubank/gpubank/internal/failpoint"
	"github.com/gpubank/gpubank/pkg/ledger"
)

// bound ends an attempt whose pod the API server has bound.
func (a *attempt) bound() {
	a.end.Do(func() {
		failpoint.Hit("scheduler.after-bind")
		go func() {
			defer close(a.over)
			ctx, cancel := context.WithTimeout(a.pl.ctx, a.pl.args.LedgerTimeout.Duration)
			defer cancel()
			a.confirm(ctx)
			a.pl.lanes.leave(a.pod.UID)
		}()
	})
}

// abandon ends an attempt whose pod was not bound, as far as its caller knows. It does not wait.
func (a *attempt) abandon() {
	a.end.Do(func() {
		close(a.abandoned)
		go func() {
			defer close(a.over)
			<-a.answered
			<-a.before
			ctx, cancel := context.WithTimeout(a.pl.ctx, a.pl.args.LedgerTimeout.Duration)
			defer cancel()
			a.giveBack(ctx)
		}()
	})
}

// giveBack undoes what the attempt committed, or may have committed.
func (a *attempt) giveBack(ctx context.Context) {
	nothingDone := !a.sent || a.answer.err == nil && !a.answer.committed()
	if nothingDone || a.epoch == 0 {
		return
	}
	what := release
	if a.bindable {
		live, err := a.pl.client.CoreV1().Pods(a.pod.Namespace).Get(ctx, a.pod.Name, metav1.GetOptions{})
		what = afterFailedBind(a.pod.UID, live, err)
	}
	logger := klog.LoggerWithValues(klog.FromContext(a.pl.ctx), "pod", klog.KObj(a.pod), "podUID", a.pod.UID, "node", a.node)
	switch what {
	case confirm:
		logger.Info("Pod is bound although binding it failed; its allocation stands")
		a.confirm(ctx)
	case leave:
		logger.Info("Whether the pod is bound could not be read; its allocation is left to the controller")
	case release:
		// An Allocate of unknown outcome is settled first, so that it cannot be committed after its release.
		command := ledger.ReleaseAllocation{Key: fmt.Sprintf("release:%s:%d:%d", a.pod.UID, a.epoch, a.pl.attempts.Add(1)), PodUID: string(a.pod.UID), Reason: "not bound"}
		if _, err := a.lane.settle(ctx, a.pl.ledger); err != nil {
			a.lane.unknown = append(a.lane.unknown, &pending{command: command})
			return
		}
		if _, err := a.lane.send(ctx, a.pl.ledger, command); err != nil {
			logger.Info("Allocation could not be released yet; the pod's next attempt, or the controller, does it", "reason", err.Error())
		}
	}
}

// confirm tells the ledger that the pod is bound. If it cannot be told, the controller finds a bound pod with an intent.
func (a *attempt) confirm(ctx context.Context) {
	verdict, err := a.pl.ledger.Submit(ctx, ledger.ConfirmBound{
		Key: fmt.Sprintf("bound:%s:%s", a.pod.UID, a.node), PodUID: string(a.pod.UID), Node: a.node,
	})
	if err == nil && verdict.Refusal == nil {
		return
	}
	logger := klog.LoggerWithValues(klog.FromContext(a.pl.ctx), "pod", klog.KObj(a.pod), "podUID", a.pod.UID, "node", a.node)
	if err != nil {
		logger.Info("Ledger could not be told that the pod is bound; the controller does it", "reason", err.Error())
		return
	}
	logger.Error(verdict.Refusal, "Ledger refuses that the pod is bound; the controller keeps the disagreement")
}

// undo is what becomes of a committed allocation whose pod was not bound, as it seems.
type undo int

const (
	release undo = iota
	confirm
	leave
)

// afterFailedBind decides what to do after Bind has failed, from the pod as the API server shows it now: a failed
// call may have succeeded (B9). What cannot be told is left to the controller, which asks again.
func afterFailedBind(uid types.UID, live *corev1.Pod, err error) undo {
	switch {
	case apierrors.IsNotFound(err):
		return leave // gone: it may have been bound, and forced away, in between
	case err != nil:
		return leave
	case live.UID != uid:
		return leave
	case live.Spec.NodeName != "":
		return confirm
	}
	return release
}
