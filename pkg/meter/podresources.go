package meter

import (
	"context"
	"fmt"
	"path"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

const (
	// maxListBytes is the kubelet's own limit for PodResources answers (podresources.defaultPodResourcesMaxSize).
	maxListBytes = 16 << 20
	// listTimeout bounds one call; the kubelet's own clients use 10 s.
	listTimeout = 10 * time.Second
)

// Kubelet asks a kubelet which pods hold which GPUs.
type Kubelet struct {
	connection *grpc.ClientConn
	client     podresourcesv1.PodResourcesListerClient
	// resourceNames are patterns as of path.Match, such as nvidia.com/mig-*.
	resourceNames []string
}

// NewKubelet prepares to ask the kubelet behind the Unix socket; it connects with the first question, and again
// whenever the kubelet was restarted. Resources whose names match one of resourceNames count as GPUs.
func NewKubelet(socket string, resourceNames []string) (*Kubelet, error) {
	for _, pattern := range resourceNames {
		if _, err := path.Match(pattern, ""); err != nil {
			return nil, fmt.Errorf("resource name pattern %q: %w", pattern, err)
		}
	}
	connection, err := grpc.NewClient("unix:"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxListBytes)))
	if err != nil {
		return nil, fmt.Errorf("PodResources socket %s: %w", socket, err)
	}
	return &Kubelet{connection, podresourcesv1.NewPodResourcesListerClient(connection), resourceNames}, nil
}

// Close ends the connection.
func (k *Kubelet) Close() error { return k.connection.Close() }

// List asks who holds what.
func (k *Kubelet) List(ctx context.Context) (Listing, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	answer, err := k.client.List(ctx, &podresourcesv1.ListPodResourcesRequest{})
	if err != nil {
		return Listing{}, fmt.Errorf("list pod resources: %w", err)
	}
	listing := Listing{}
	for _, pod := range answer.GetPodResources() {
		var containers []*podresourcesv1.ContainerDevices
		for _, container := range pod.GetContainers() {
			containers = append(containers, container.GetDevices()...)
		}
		if ids := k.devices(containers); len(ids) > 0 {
			listing.Pods = append(listing.Pods, ListedPod{Name: PodName{pod.GetNamespace(), pod.GetName()}, DeviceIDs: ids})
		}
	}
	if !slices.ContainsFunc(listing.Pods, ListedPod.shares) {
		return listing, nil
	}
	// How many replicas a shared device has is known from all devices, not from those in use.
	allocatable, err := k.client.GetAllocatableResources(ctx, &podresourcesv1.AllocatableResourcesRequest{})
	if err != nil {
		return Listing{}, fmt.Errorf("list allocatable resources: %w", err)
	}
	listing.Replicas = map[string]int{}
	for _, id := range k.devices(allocatable.GetDevices()) {
		listing.Replicas[deviceUUID(id)]++
	}
	return listing, nil
}

// devices are the ids of the GPUs among all, sorted and without repeats: the kubelet lists a device once per NUMA
// node, and in each container that shares it.
func (k *Kubelet) devices(all []*podresourcesv1.ContainerDevices) []string {
	var ids []string
	for _, devices := range all {
		if k.counts(devices.GetResourceName()) {
			ids = append(ids, devices.GetDeviceIds()...)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func (k *Kubelet) counts(resourceName string) bool {
	return slices.ContainsFunc(k.resourceNames, func(pattern string) bool {
		matches, _ := path.Match(pattern, resourceName) // patterns were checked
		return matches
	})
}
