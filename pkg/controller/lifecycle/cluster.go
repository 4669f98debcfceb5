package lifecycle

import (
	"context"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/workload"
)

// cluster reads what the API server knows.
type cluster struct {
	// cached answers from watches: may be old, never wrong about what existed.
	cached client.Reader
	// live asks the API server itself: the only source of "there is no such object".
	live client.Reader
}

// find reads an object by name and UID into object. It reports false only when the API server itself has just said that
// no object of that UID is there.
func (c cluster) find(ctx context.Context, key types.NamespacedName, uid string, object client.Object) (bool, error) {
	for _, reader := range []client.Reader{c.cached, c.live} {
		err := reader.Get(ctx, key, object)
		if err == nil && string(object.GetUID()) == uid {
			return true, nil
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return false, fmt.Errorf("look for %s with UID %s: %w", key, uid, err)
		}
	}
	return false, nil
}

// pod returns the pod, or nil when it is confirmed gone.
func (c cluster) pod(ctx context.Context, key PodKey) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	found, err := c.find(ctx, types.NamespacedName{Namespace: key.Namespace, Name: key.Name}, key.UID, pod)
	if err != nil || !found {
		return nil, err
	}
	return pod, nil
}

// job returns the Job, or nil when it is confirmed gone.
func (c cluster) job(ctx context.Context, uid string, workload ledger.WorkloadRef) (*batchv1.Job, error) {
	job := &batchv1.Job{}
	found, err := c.find(ctx, types.NamespacedName{Namespace: workload.Namespace, Name: workload.Name}, uid, job)
	if err != nil || !found {
		return nil, err
	}
	return job, nil
}

// node reads whether the Node is there and vouched to be off.
func (c cluster) node(ctx context.Context, name string) (nodeFacts, error) {
	if name == "" {
		return nodeFacts{}, nil
	}
	node := &corev1.Node{}
	err := c.cached.Get(ctx, types.NamespacedName{Name: name}, node)
	if apierrors.IsNotFound(err) {
		err = c.live.Get(ctx, types.NamespacedName{Name: name}, node)
	}
	if apierrors.IsNotFound(err) {
		return nodeFacts{missing: true}, nil
	}
	if err != nil {
		return nodeFacts{}, fmt.Errorf("look for node %s: %w", name, err)
	}
	outOfService := slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
	return nodeFacts{outOfService: outOfService, cordoned: node.Spec.Unschedulable, lastRenewal: unreadySince(node)}, nil
}

// unreadySince is the kubelet's last heartbeat of a node that the node controller has given up on. It stands in for
// the lease where there is none.
func unreadySince(node *corev1.Node) time.Time {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionUnknown {
			return condition.LastHeartbeatTime.UTC()
		}
	}
	return time.Time{}
}

// enrolment reads who pays for a namespace: its label and the account's list must agree.
func (c cluster) enrolment(ctx context.Context, namespace string) (enrolment, error) {
	object := &corev1.Namespace{}
	if err := c.cached.Get(ctx, types.NamespacedName{Name: namespace}, object); err != nil {
		return enrolment{}, fmt.Errorf("read namespace %s: %w", namespace, err)
	}
	name := object.Labels[v1alpha1.AccountLabel]
	if name == "" {
		return enrolment{}, nil
	}
	account := &v1alpha1.CreditAccount{}
	err := c.cached.Get(ctx, types.NamespacedName{Name: name}, account)
	if client.IgnoreNotFound(err) != nil {
		return enrolment{}, fmt.Errorf("read account %s of namespace %s: %w", name, namespace, err)
	}
	if err != nil || !slices.Contains(account.Spec.Namespaces, namespace) {
		return enrolment{claimed: name}, nil
	}
	return enrolment{account: name, claimed: name, defaultMaxRuntime: workload.DefaultMaxRuntime(account)}, nil
}

// classes lists the GPUClasses.
func (c cluster) classes(ctx context.Context) ([]v1alpha1.GPUClass, error) {
	list := &v1alpha1.GPUClassList{}
	if err := c.cached.List(ctx, list); err != nil {
		return nil, fmt.Errorf("list GPU classes: %w", err)
	}
	return list.Items, nil
}
