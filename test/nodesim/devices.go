package nodesim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/gpubank/gpubank/pkg/nvml"
)

// assignments says which pod has which device: pod UID → container → device ids. A device has at most one pod.
type assignments map[types.UID]map[string][]string

// deviceManager assigns a node's devices, exclusively, and remembers it in a file.
type deviceManager struct {
	spec       NodeSpec
	checkpoint string
	simulated  string

	mu       sync.Mutex
	assigned assignments
}

func newDeviceManager(spec NodeSpec, socketDir string) (*deviceManager, error) {
	m := &deviceManager{
		spec:       spec,
		checkpoint: checkpointPath(socketDir, spec.Name),
		simulated:  SimulatedGPUsPath(socketDir, spec.Name),
		assigned:   assignments{},
	}
	content, err := os.ReadFile(m.checkpoint)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("read device checkpoint: %w", err)
	default:
		if err := json.Unmarshal(content, &m.assigned); err != nil {
			return nil, fmt.Errorf("read device checkpoint %s: %w", m.checkpoint, err)
		}
	}
	return m, m.save()
}

// ids are all device ids of the node, in order.
func (m *deviceManager) ids() []string {
	var ids []string
	for gpu := range m.spec.GPUs {
		for replica := range m.spec.Replicas {
			id := GPUUUID(m.spec.Name, gpu)
			if m.spec.Replicas > 1 {
				id = fmt.Sprintf("%s::%d", id, replica)
			}
			ids = append(ids, id)
		}
	}
	return ids
}

// demand is how many devices each container of the pod gets. Ordinary init containers lend theirs to the containers
// that start after them, as the kubelet does, so they get only what is beyond those.
func demand(pod *v1.Pod, resource v1.ResourceName) map[string]int {
	counts := map[string]int{}
	total := 0
	add := func(container v1.Container, less int) {
		quantity := container.Resources.Limits[resource]
		if n := int(quantity.Value()) - less; n > 0 {
			counts[container.Name] = n
			total += n
		}
	}
	for _, container := range pod.Spec.Containers {
		add(container, 0)
	}
	for _, container := range pod.Spec.InitContainers {
		if restartable(container) {
			add(container, 0)
		}
	}
	for _, container := range pod.Spec.InitContainers {
		if !restartable(container) {
			add(container, total)
		}
	}
	return counts
}

func restartable(container v1.Container) bool {
	return container.RestartPolicy != nil && *container.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// assign gives the pod its devices; a pod that has them keeps them. It reports how many were free when they do not
// suffice.
func (m *deviceManager) assign(pod *v1.Pod) (ok bool, wanted, free int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, has := m.assigned[pod.UID]; has {
		return true, 0, 0, nil
	}
	counts := demand(pod, v1.ResourceName(m.spec.ResourceName))
	for _, count := range counts {
		wanted += count
	}
	available := m.free()
	if wanted > len(available) {
		return false, wanted, len(available), nil
	}
	devices := map[string][]string{}
	for _, container := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		count := counts[container.Name]
		if count == 0 {
			continue
		}
		devices[container.Name], available = available[:count:count], available[count:]
	}
	m.assigned[pod.UID] = devices
	return true, wanted, len(available), m.save()
}

func (m *deviceManager) free() []string {
	taken := map[string]bool{}
	for _, containers := range m.assigned {
		for _, ids := range containers {
			for _, id := range ids {
				taken[id] = true
			}
		}
	}
	return slices.DeleteFunc(m.ids(), func(id string) bool { return taken[id] })
}

// release takes the pod's devices back.
func (m *deviceManager) release(pod types.UID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, has := m.assigned[pod]; !has {
		return nil
	}
	delete(m.assigned, pod)
	return m.save()
}

func (m *deviceManager) of(pod types.UID, container string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.assigned[pod][container])
}

func (m *deviceManager) holders() []types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	var uids []types.UID
	for uid := range m.assigned {
		uids = append(uids, uid)
	}
	return uids
}

// busyPercent is what a GPU that a pod holds shows as its utilisation; idle ones show 0.
const busyPercent = 80

// save writes the checkpoint and what the simulated driver says.
func (m *deviceManager) save() error {
	free := m.free()
	var file nvml.SimulatedFile
	for index := range m.spec.GPUs {
		uuid := GPUUUID(m.spec.Name, index)
		gpu := nvml.SimulatedGPU{
			Device:             nvml.Device{Index: index, UUID: uuid, Model: "Simulated GPU", MemoryBytes: 80 << 30},
			UtilisationPercent: busyPercent,
		}
		if slices.Contains(free, uuid) || m.spec.Replicas > 1 && slices.Contains(free, uuid+"::0") {
			gpu.UtilisationPercent = 0
		}
		file.GPUs = append(file.GPUs, gpu)
	}
	simulated, err := yaml.Marshal(file)
	if err != nil {
		return err
	}
	checkpoint, err := json.Marshal(m.assigned)
	if err != nil {
		return err
	}
	return errors.Join(replace(m.checkpoint, checkpoint), replace(m.simulated, simulated))
}

// replace swaps the file's content in one step, so that no reader sees half of it.
func replace(path string, content []byte) error {
	if err := os.WriteFile(path+".new", content, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
