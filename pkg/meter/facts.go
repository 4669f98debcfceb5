package meter

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/workload"
)

// PodName is how the kubelet names a pod. Two pods can have the same name, one after the other.
type PodName struct{ Namespace, Name string }

// PodFacts is what the API server says of a pod on this node.
type PodFacts struct {
	UID     string
	Name    PodName
	Account string // label gpubank.io/account, empty if unknown
	Class   string // label gpubank.io/gpu-class, empty if unknown
	// Enrolled: gpubank has to do with it, so the intake wants to know.
	Enrolled bool
	Held     workload.HeldTime
}

// FactsOf reads a pod.
func FactsOf(pod *corev1.Pod) PodFacts {
	account := pod.Labels[v1alpha1.AccountLabel]
	return PodFacts{
		UID:     string(pod.UID),
		Name:    PodName{pod.Namespace, pod.Name},
		Account: account,
		Class:   pod.Labels[v1alpha1.ClassLabel],
		// A pod that came past the webhook while that was down has no label, but the scheduler or the finalizer.
		Enrolled: account != "" || pod.Spec.SchedulerName == v1alpha1.SchedulerName ||
			slices.Contains(pod.Finalizers, v1alpha1.MeteringFinalizer),
		Held: workload.Held(pod),
	}
}

// ListedPod is a pod as the kubelet lists it, with the GPUs it holds.
type ListedPod struct {
	Name PodName
	// DeviceIDs are sorted, without repeats, at least one.
	DeviceIDs []string
}

// shares reports whether one of its devices is a replica of a time-sliced one.
func (p ListedPod) shares() bool {
	return slices.ContainsFunc(p.DeviceIDs, func(id string) bool { return id != deviceUUID(id) })
}

// Listing is the kubelet's answer to who holds what.
type Listing struct {
	Pods []ListedPod
	// Replicas is how many time-slicing replicas each shared device offers, by UUID; devices not in it are whole.
	Replicas map[string]int
}

// HeldDevice is a device that a pod holds, or a share of it.
type HeldDevice struct {
	UUID string `json:"uuid"`
	// IDs are the device ids the pod was given of it: the UUID itself, or replicas such as "GPU-…::2".
	IDs []string `json:"ids"`
	// Replicas is how many the device offers in all; 1 for a whole device. The pod's share is len(IDs)/Replicas, so
	// that the shares of a device add up to the device (G33).
	Replicas int `json:"replicas"`
}

// Share is the part of the device that the pod holds, above 0 and at most 1.
func (d HeldDevice) Share() float64 {
	return float64(len(d.IDs)) / float64(max(d.Replicas, len(d.IDs)))
}

// deviceUUID drops a replica suffix: device ids are GPU or MIG UUIDs, with "::n" appended where time-slicing shares them.
func deviceUUID(id string) string {
	uuid, _, _ := strings.Cut(id, "::")
	return uuid
}

// heldDevices groups sorted device ids by device.
func heldDevices(ids []string, replicas map[string]int) []HeldDevice {
	var devices []HeldDevice
	for _, id := range ids {
		uuid := deviceUUID(id)
		if last := len(devices) - 1; last >= 0 && devices[last].UUID == uuid {
			devices[last].IDs = append(devices[last].IDs, id)
			continue
		}
		devices = append(devices, HeldDevice{UUID: uuid, IDs: []string{id}, Replicas: max(1, replicas[uuid])})
	}
	return devices
}

// Record is what the agent remembers, on disk, of one pod's hold on GPUs.
type Record struct {
	PodUID    string       `json:"podUID"`
	Name      PodName      `json:"name"`
	Account   string       `json:"account"`
	Class     string       `json:"class"`
	StartedAt time.Time    `json:"startedAt"`
	Devices   []HeldDevice `json:"devices"`
	// LastCut is how far its held time is cut; StartedAt at first.
	LastCut time.Time `json:"lastCut"`
	// Reported: its intervals go to the intake. Others are only shown.
	Reported bool `json:"reported"`
	// FinalAt is when its last interval was cut, by this node's clock; zero before.
	FinalAt time.Time `json:"finalAt"`
}

// DeviceIDs are the ids of all devices it holds, sorted.
func (r Record) DeviceIDs() []string {
	var ids []string
	for _, device := range r.Devices {
		ids = append(ids, device.IDs...)
	}
	slices.Sort(ids)
	return ids
}
