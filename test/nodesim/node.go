package nodesim

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

// node plays one kubelet.
type node struct {
	spec    NodeSpec
	socket  string
	lease   time.Duration
	client  kubernetes.Interface
	indexer cache.Indexer
	devices *deviceManager
	queue   workqueue.TypedRateLimitingInterface[string]

	mu      sync.Mutex
	stopped func() // nil while silent
}

func newNode(spec NodeSpec, options Options, client kubernetes.Interface, indexer cache.Indexer) (*node, error) {
	devices, err := newDeviceManager(spec, options.SocketDir)
	if err != nil {
		return nil, err
	}
	return &node{
		spec:    spec,
		socket:  SocketPath(options.SocketDir, spec.Name),
		lease:   options.LeaseInterval,
		client:  client,
		indexer: indexer,
		devices: devices,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryAfter/10, 10*retryAfter)),
	}, nil
}

// start brings the node up: registered, Ready, leased, serving and handling its pods. It does nothing on a node that
// is up.
func (n *node) start(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stopped != nil {
		return nil
	}
	if err := persist(ctx, n.register); err != nil {
		return err
	}
	if err := persist(ctx, n.renew); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(klog.NewContext(ctx, klog.FromContext(ctx).WithValues("node", n.spec.Name)))
	stopServing, err := n.servePodResources(ctx)
	if err != nil {
		cancel()
		return err
	}
	var loops sync.WaitGroup
	loops.Go(func() {
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			if err := n.renew(ctx); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Node lease was not renewed")
			}
		}, n.lease)
	})
	keys := make(chan string)
	loops.Go(func() { n.feed(ctx, keys) })
	loops.Go(func() { n.work(ctx, keys) })
	for _, pod := range n.pods() {
		n.queue.Add(pod.Namespace + "/" + pod.Name)
	}
	n.stopped = func() {
		cancel()
		stopServing()
		n.queue.Add(wakeUp) // feed may be waiting for a key
		loops.Wait()
	}
	return nil
}

// stop silences the node.
func (n *node) stop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stopped != nil {
		n.stopped()
		n.stopped = nil
	}
}

// persist repeats attempt until it succeeds or ctx ends: the API server may be starting.
func persist(ctx context.Context, attempt func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, retryAfter, true, func(ctx context.Context) (bool, error) {
		last = attempt(ctx)
		return last == nil, nil
	})
	if err != nil && last != nil {
		return last
	}
	return err
}

// register creates the Node, or brings an existing one up to date, and takes off the not-ready taint that the API
// server put on it.
func (n *node) register(ctx context.Context) error {
	labels := map[string]string{
		v1.LabelHostname: n.spec.Name, v1.LabelOSStable: "linux", v1.LabelArchStable: "amd64",
	}
	maps.Copy(labels, n.spec.Labels)
	object, err := n.client.CoreV1().Nodes().Create(ctx, &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.spec.Name, Labels: labels},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		object, err = n.client.CoreV1().Nodes().Get(ctx, n.spec.Name, metav1.GetOptions{})
	}
	if err != nil {
		return fmt.Errorf("register node %s: %w", n.spec.Name, err)
	}
	object.Labels = labels
	object.Spec.Taints = keep(object.Spec.Taints, v1.TaintNodeNotReady, v1.TaintNodeUnreachable)
	if object, err = n.client.CoreV1().Nodes().Update(ctx, object, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("register node %s: %w", n.spec.Name, err)
	}
	object.Status = n.status(time.Now())
	if _, err = n.client.CoreV1().Nodes().UpdateStatus(ctx, object, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("report status of node %s: %w", n.spec.Name, err)
	}
	return nil
}

// keep returns the taints whose keys are not among drop.
func keep(taints []v1.Taint, drop ...string) []v1.Taint {
	var kept []v1.Taint
next:
	for _, taint := range taints {
		for _, key := range drop {
			if taint.Key == key {
				continue next
			}
		}
		kept = append(kept, taint)
	}
	return kept
}

func (n *node) status(now time.Time) v1.NodeStatus {
	capacity := v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("128"), v1.ResourceMemory: resource.MustParse("1Ti"),
		v1.ResourcePods: resource.MustParse("110"), v1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
	}
	if n.spec.GPUs > 0 {
		capacity[v1.ResourceName(n.spec.ResourceName)] = *resource.NewQuantity(int64(n.spec.GPUs*n.spec.Replicas), resource.DecimalSI)
	}
	status := v1.NodeStatus{
		Capacity:    capacity,
		Allocatable: capacity,
		Addresses:   []v1.NodeAddress{{Type: v1.NodeHostName, Address: n.spec.Name}, {Type: v1.NodeInternalIP, Address: "127.0.0.1"}},
		NodeInfo:    v1.NodeSystemInfo{KubeletVersion: "v1.37.2", OperatingSystem: "linux", Architecture: "amd64", ContainerRuntimeVersion: "nodesim://1"},
	}
	for kind, value := range map[v1.NodeConditionType]v1.ConditionStatus{
		v1.NodeReady: v1.ConditionTrue, v1.NodeMemoryPressure: v1.ConditionFalse,
		v1.NodeDiskPressure: v1.ConditionFalse, v1.NodePIDPressure: v1.ConditionFalse,
	} {
		status.Conditions = append(status.Conditions, v1.NodeCondition{
			Type: kind, Status: value, Reason: "NodeSimulated",
			LastHeartbeatTime: metav1.NewTime(now), LastTransitionTime: metav1.NewTime(now),
		})
	}
	return status
}

// renew renews the node's lease, creating it when it is missing. A node that was deleted meanwhile stays away, as a
// kubelet's does until it is restarted.
func (n *node) renew(ctx context.Context) error {
	leases := n.client.CoordinationV1().Leases(v1.NamespaceNodeLease)
	now := metav1.NewMicroTime(time.Now())
	renewal, err := json.Marshal(map[string]any{"spec": coordinationv1.LeaseSpec{RenewTime: &now}})
	if err != nil {
		return err
	}
	_, err = leases.Patch(ctx, n.spec.Name, types.MergePatchType, renewal, metav1.PatchOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	_, err = leases.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: n.spec.Name, Namespace: v1.NamespaceNodeLease},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity:       ptr.To(n.spec.Name),
			LeaseDurationSeconds: ptr.To(int32(40)), // the kubelet's default
			RenewTime:            &now,
		},
	}, metav1.CreateOptions{})
	return err
}

// pods are those bound to the node, by the cache.
func (n *node) pods() []*v1.Pod {
	objects, err := n.indexer.ByIndex(byNode, n.spec.Name)
	if err != nil {
		panic(err) // the index was registered before the cache started
	}
	pods := make([]*v1.Pod, len(objects))
	for i, object := range objects {
		pods[i] = object.(*v1.Pod)
	}
	return pods
}
