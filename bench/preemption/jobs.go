package preemption

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/gpubank/gpubank/pkg/workload"
)

const (
	gpusPerNode = 8
	restart     = 180 * time.Second
	namespace   = "bench"
	gpuName     = "nvidia.com/gpu"
)

// mix is where jobs' sizes come from.
type mix struct {
	name string
	draw func(*rand.Rand) int64
}

// evenMix is equal parts of 1, 2, 4 and 8 GPUs.
var evenMix = mix{"even", func(r *rand.Rand) int64 { return []int64{1, 2, 4, 8}[r.IntN(4)] }}

// openBMix draws from the GPU pods of a trace, each pod once.
func openBMix(folder string) (mix, error) {
	path := filepath.Join(folder, "openb_pod_list_default.csv")
	file, err := os.Open(path)
	if err != nil {
		return mix{}, fmt.Errorf("read openb's sizes (OPENB_DIR): %w", err)
	}
	defer file.Close()
	rows := csv.NewReader(file)
	head, err := rows.Read()
	if err != nil {
		return mix{}, fmt.Errorf("read %s: %w", path, err)
	}
	column := -1
	for i, name := range head {
		if name == "num_gpu" {
			column = i
		}
	}
	if column < 0 {
		return mix{}, fmt.Errorf("read %s: no column num_gpu", path)
	}
	var sizes []int64
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return mix{}, fmt.Errorf("read %s: %w", path, err)
		}
		gpus, err := strconv.ParseInt(row[column], 10, 64)
		if err != nil {
			return mix{}, fmt.Errorf("read %s: num_gpu: %w", path, err)
		}
		if gpus >= 1 && gpus <= gpusPerNode {
			sizes = append(sizes, gpus)
		}
	}
	if len(sizes) == 0 {
		return mix{}, fmt.Errorf("%s has no GPU pods", path)
	}
	return mix{"openb", func(r *rand.Rand) int64 { return sizes[r.IntN(len(sizes))] }}, nil
}

// job is a running pod and what its stop truly destroys, in GPU-seconds.
type job struct {
	pod   *corev1.Pod
	truth float64
}

// intervals between checkpoints; 0 is never.
var intervals = []time.Duration{10 * time.Minute, 30 * time.Minute, time.Hour, 4 * time.Hour, 0}

// newJob is a job on a node. One that never saves its work says so, or, if silent, says nothing at all.
func newJob(r *rand.Rand, node string, serial int, gpus int64, longest time.Duration, now time.Time, silent bool) job {
	interval := intervals[r.IntN(len(intervals))]
	ran := time.Duration(r.Int64N(int64(longest/time.Second))) * time.Second
	age := ran
	if interval > 0 {
		age = min(ran, time.Duration(r.Int64N(int64(interval/time.Second)))*time.Second)
	}
	pod := newPod(fmt.Sprintf("job-%05d", serial), gpus, 0)
	pod.Spec.NodeName = node
	pod.Status.Phase = corev1.PodRunning
	pod.Status.StartTime = ptr.To(metav1.NewTime(now.Add(-ran)))
	pod.Annotations = map[string]string{workload.RestartSecondsAnnotation: strconv.Itoa(int(restart / time.Second))}
	switch {
	case interval > 0:
		pod.Annotations[workload.CheckpointIntervalAnnotation] = interval.String()
		pod.Annotations[workload.CheckpointedAtAnnotation] = now.Add(-age).UTC().Format(time.RFC3339)
	case silent:
		delete(pod.Annotations, workload.RestartSecondsAnnotation)
	default:
		pod.Annotations[workload.CheckpointIntervalAnnotation] = workload.NoCheckpoints
	}
	return job{pod: pod, truth: float64(gpus) * (age + restart).Seconds()}
}

func newPod(name string, gpus int64, priority int32) *corev1.Pod {
	amount := corev1.ResourceList{
		gpuName: *resource.NewQuantity(gpus, resource.DecimalSI), corev1.ResourceCPU: *resource.NewQuantity(gpus, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(gpus<<30, resource.BinarySI),
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name), CreationTimestamp: metav1.Now()},
		Spec: corev1.PodSpec{
			Priority:   ptr.To(priority),
			Containers: []corev1.Container{{Name: "main", Image: "none.invalid/main", Resources: corev1.ResourceRequirements{Requests: amount, Limits: amount}}},
		},
	}
}

func newNode(i int) *corev1.Node {
	amount := corev1.ResourceList{
		gpuName: *resource.NewQuantity(gpusPerNode, resource.DecimalSI), corev1.ResourceCPU: *resource.NewQuantity(64, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(512<<30, resource.BinarySI), corev1.ResourcePods: *resource.NewQuantity(110, resource.DecimalSI),
	}
	name := fmt.Sprintf("node-%05d", i)
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{"kubernetes.io/hostname": name}},
		Status:     corev1.NodeStatus{Capacity: amount, Allocatable: amount},
	}
}

// fill makes jobs until every node is full: a size that does not fit any more gives way to the largest that does.
func fill(r *rand.Rand, nodes []*corev1.Node, sizes mix, longest time.Duration, now time.Time, silent bool) []job {
	var jobs []job
	for _, node := range nodes {
		for free := int64(gpusPerNode); free > 0; {
			gpus := sizes.draw(r)
			for gpus > free {
				gpus /= 2
			}
			jobs = append(jobs, newJob(r, node.Name, len(jobs), gpus, longest, now, silent))
			free -= gpus
		}
	}
	return jobs
}
