package nodesim

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubernetes/pkg/kubelet/apis/podresources"
)

// servePodResources listens on the node's socket until stop is called, as the kubelet does.
func (n *node) servePodResources(ctx context.Context) (stop func(), err error) {
	// A socket file that a killed process left behind would make the address appear in use.
	if err := os.Remove(n.socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	listener, err := net.Listen("unix", n.socket)
	if err != nil {
		return nil, fmt.Errorf("serve PodResources of node %s: %w", n.spec.Name, err)
	}
	server := grpc.NewServer()
	podresourcesapi.RegisterPodResourcesListerServer(server, podresources.NewV1PodResourcesServer(ctx, podresources.PodResourcesProviders{
		Pods:             n,
		Devices:          deviceProvider{n.devices},
		Cpus:             nothing{},
		Memory:           nothing{},
		DynamicResources: nothing{},
	}))
	go func() { _ = server.Serve(listener) }() // ends with Stop
	return server.Stop, nil
}

// GetActivePods are the pods that the node has admitted and whose containers have not ended, whether or not the API
// server could be told of that.
func (n *node) GetActivePods() []*v1.Pod {
	holders := map[types.UID]bool{}
	for _, uid := range n.devices.holders() {
		holders[uid] = true
	}
	var active []*v1.Pod
	for _, pod := range n.pods() {
		what, _, _ := next(pod, time.Now())
		if holders[pod.UID] && what != finish && pod.Status.Phase != v1.PodSucceeded && pod.Status.Phase != v1.PodFailed {
			active = append(active, pod)
		}
	}
	return active
}

// GetPods is all pods bound to the node.
func (n *node) GetPods() []*v1.Pod { return n.pods() }

// GetPodByName finds one of them.
func (n *node) GetPodByName(namespace, name string) (*v1.Pod, bool) {
	for _, pod := range n.pods() {
		if pod.Namespace == namespace && pod.Name == name {
			return pod, true
		}
	}
	return nil, false
}

type deviceProvider struct{ devices *deviceManager }

func (deviceProvider) UpdateAllocatedDevices(klog.Logger) {}

func (p deviceProvider) GetDevices(podUID, container string) []*podresourcesapi.ContainerDevices {
	ids := p.devices.of(types.UID(podUID), container)
	if len(ids) == 0 {
		return nil
	}
	return []*podresourcesapi.ContainerDevices{{ResourceName: p.devices.spec.ResourceName, DeviceIds: ids}}
}

func (p deviceProvider) GetAllocatableDevices(klog.Logger) []*podresourcesapi.ContainerDevices {
	var all []*podresourcesapi.ContainerDevices
	for _, id := range p.devices.ids() {
		// The kubelet, too, lists each device by itself.
		all = append(all, &podresourcesapi.ContainerDevices{ResourceName: p.devices.spec.ResourceName, DeviceIds: []string{id}})
	}
	return all
}

// nothing provides no CPUs, memory or dynamic resources.
type nothing struct{}

func (nothing) GetCPUs(*v1.Pod, *v1.Container) []int64 { return nil }
func (nothing) GetPodCPUs(string) []int64              { return nil }
func (nothing) GetAllocatableCPUs() []int64            { return nil }
func (nothing) GetMemory(klog.Logger, *v1.Pod, *v1.Container) []*podresourcesapi.ContainerMemory {
	return nil
}
func (nothing) GetPodMemory(klog.Logger, string) []*podresourcesapi.ContainerMemory { return nil }
func (nothing) GetAllocatableMemory(klog.Logger) []*podresourcesapi.ContainerMemory { return nil }
func (nothing) GetDynamicResources(klog.Logger, *v1.Pod, *v1.Container) []*podresourcesapi.DynamicResource {
	return nil
}
