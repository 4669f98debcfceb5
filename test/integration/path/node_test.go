package path_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpubank/gpubank/pkg/meter/intakeapi"
)

const gpuResource = "nvidia.com/gpu"

// node is a kubelet and a node agent, played by the test: it writes the Node, its lease and pods' status, and reports
// intervals to the intake under a token that the API server bound to an agent's pod on this node.
type node struct {
	w      *world
	name   string
	agent  *intakeapi.Client
	epoch  int64
	stop   context.CancelFunc
	silent chan struct{}
}

func (w *world) newNode(t *testing.T, name string) *node {
	t.Helper()
	ctx := t.Context()
	capacity := corev1.ResourceList{
		gpuResource: resource.MustParse("8"), corev1.ResourceCPU: resource.MustParse("64"),
		corev1.ResourceMemory: resource.MustParse("512Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
	must(t, w.client.Create(ctx, object))
	status := corev1.NodeStatus{
		Capacity: capacity, Allocatable: capacity,
		Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
			LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
		}},
	}
	// The node controllers write to a new Node too.
	must(t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := w.client.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		object.Status = status
		return w.client.Status().Update(ctx, object)
	}))
	n := &node{w: w, name: name, silent: make(chan struct{})}
	n.beat(t)

	token, err := w.bank.AgentToken(ctx, name)
	must(t, err)
	tokenFile := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(tokenFile, []byte(token), 0o600))
	n.agent, err = intakeapi.NewClient(intakeapi.ClientOptions{
		URL: w.bank.IntakeURL, CAFile: w.bank.IntakeCAFile, TokenFile: tokenFile, Timeout: 15 * time.Second,
	})
	must(t, err)
	registered, err := n.agent.Register(ctx, intakeapi.RegisterRequest{Node: name, Holder: t.Name()})
	must(t, err)
	n.epoch = registered.Epoch
	return n
}

// beat renews the node's lease every second, as its kubelet would every ten, until the node falls silent.
func (n *node) beat(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	n.stop = stop
	t.Cleanup(n.fallSilent)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: n.name}}
	renew := func(ctx context.Context) error {
		lease.Spec = coordinationv1.LeaseSpec{
			HolderIdentity: &n.name, LeaseDurationSeconds: ptr.To(int32(40)), RenewTime: &metav1.MicroTime{Time: time.Now()},
		}
		if lease.ResourceVersion == "" {
			return n.w.client.Create(ctx, lease)
		}
		return n.w.client.Update(ctx, lease)
	}
	must(t, renew(ctx))
	go func() {
		defer close(n.silent)
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			_ = renew(ctx) // the API server may be away; the next beat follows
		}, time.Second)
	}()
}

// fallSilent stops the lease's renewal.
func (n *node) fallSilent() {
	n.stop()
	<-n.silent
}

// lastRenewal is the last one that the API server has.
func (n *node) lastRenewal(t *testing.T) time.Time {
	t.Helper()
	var lease coordinationv1.Lease
	must(t, n.w.client.Get(t.Context(), client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: n.name}, &lease))
	return lease.Spec.RenewTime.Time
}

// run writes what the kubelet does when it has admitted and started a pod.
func (n *node) run(t *testing.T, pod *corev1.Pod, started time.Time) {
	t.Helper()
	n.setStatus(t, pod, corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: &metav1.Time{Time: started},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: pod.Spec.Containers[0].Name, Ready: true,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(started)}},
		}},
	})
}

// finish writes what the kubelet does when the pod's only container has exited.
func (n *node) finish(t *testing.T, pod *corev1.Pod, started, finished time.Time, exitCode int32) {
	t.Helper()
	phase := corev1.PodSucceeded
	if exitCode != 0 {
		phase = corev1.PodFailed
	}
	n.setStatus(t, pod, corev1.PodStatus{
		Phase: phase, StartTime: &metav1.Time{Time: started},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: pod.Spec.Containers[0].Name,
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: exitCode, StartedAt: metav1.NewTime(started), FinishedAt: metav1.NewTime(finished),
			}},
		}},
	})
}

func (n *node) setStatus(t *testing.T, pod *corev1.Pod, status corev1.PodStatus) {
	t.Helper()
	eventually(t, fmt.Sprintf("the status of pod %s is stored", pod.Name), func(ctx context.Context) bool {
		var current corev1.Pod
		if err := n.w.client.Get(ctx, client.ObjectKeyFromObject(pod), &current); err != nil {
			return false
		}
		conditions := current.Status.Conditions
		current.Status = status
		current.Status.Conditions = conditions
		return n.w.client.Status().Update(ctx, &current) == nil
	})
}

// piece is [From, To) seconds after the pod's start.
type piece struct{ From, To int }

// report sends intervals of a pod until the intake has answered for all, as an agent does with its spool.
func (n *node) report(t *testing.T, pod *corev1.Pod, started time.Time, pieces ...piece) {
	t.Helper()
	request := n.request(pod, started, pieces...)
	eventually(t, "the intake has answered", func(ctx context.Context) bool {
		response, err := n.agent.Report(ctx, request)
		if err != nil {
			return false
		}
		for _, result := range response.Results {
			if !result.Settled() {
				return false
			}
			if result.Outcome == intakeapi.Refused {
				t.Fatalf("interval %s is refused: %s: %s", result.Key, result.Code, result.Message)
			}
		}
		return true
	})
}

// request is a report of pieces of a pod's time.
func (n *node) request(pod *corev1.Pod, started time.Time, pieces ...piece) intakeapi.IntervalsRequest {
	request := intakeapi.IntervalsRequest{Node: n.name, Epoch: n.epoch}
	for _, p := range pieces {
		interval := intakeapi.Interval{
			PodUID: string(pod.UID), PodStartedAt: started.UTC(),
			Start: started.Add(time.Duration(p.From) * time.Second).UTC(), End: started.Add(time.Duration(p.To) * time.Second).UTC(),
			GPUUUIDs: []string{n.gpu(0), n.gpu(1), n.gpu(2), n.gpu(3)},
		}
		interval.Key = intakeapi.IntervalKey(interval.PodUID, interval.Start, interval.End)
		request.Intervals = append(request.Intervals, interval)
	}
	return request
}

func (n *node) gpu(index int) string { return fmt.Sprintf("GPU-%s-%d", n.name, index) }
