package workload

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podresource "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/gpubank/gpubank/api/v1alpha1"
)

func gpuClass(name string, nodeSelector map[string]string, resourceNames ...string) v1alpha1.GPUClass {
	return v1alpha1.GPUClass{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.GPUClassSpec{ResourceNames: resourceNames, NodeSelector: nodeSelector},
	}
}

var oneClass = []v1alpha1.GPUClass{gpuClass("h100", nil, "nvidia.com/gpu")}

var twoClasses = []v1alpha1.GPUClass{
	gpuClass("h100", map[string]string{"gpu": "h100"}, "nvidia.com/gpu"),
	gpuClass("a100", map[string]string{"gpu": "a100"}, "nvidia.com/gpu", "nvidia.com/mig-1g.5gb"),
}

func list(pairs ...string) corev1.ResourceList {
	resources := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		resources[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return resources
}

func limits(pairs ...string) corev1.Container {
	return corev1.Container{Resources: corev1.ResourceRequirements{Limits: list(pairs...)}}
}

func requests(pairs ...string) corev1.Container {
	return corev1.Container{Resources: corev1.ResourceRequirements{Requests: list(pairs...)}}
}

func sidecar(c corev1.Container) corev1.Container {
	c.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
	return c
}

func TestDemandOf(t *testing.T) {
	none := []v1alpha1.GPUClass{}
	for name, c := range map[string]struct {
		spec    corev1.PodSpec
		labels  map[string]string
		classes []v1alpha1.GPUClass
		want    Demand
		code    DemandCode
		says    string // part of the message: what to do
	}{
		"no GPUs": {
			spec: corev1.PodSpec{Containers: []corev1.Container{limits("cpu", "1", "memory", "1Gi", "hugepages-2Mi", "2Mi", "rdma/hca", "1")}}, classes: oneClass},
		"zero GPUs": {
			spec: corev1.PodSpec{Containers: []corev1.Container{limits("nvidia.com/gpu", "0")}}, classes: oneClass},
		"limits and requests": {
			spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
				Limits: list("nvidia.com/gpu", "4"), Requests: list("nvidia.com/gpu", "4")}}}}, classes: oneClass,
			want: Demand{"nvidia.com/gpu", "h100", 4}},
		"limits without requests": {
			spec: corev1.PodSpec{Containers: []corev1.Container{limits("nvidia.com/gpu", "4")}}, classes: oneClass,
			want: Demand{"nvidia.com/gpu", "h100", 4}},
		"requests without limits": {
			spec: corev1.PodSpec{Containers: []corev1.Container{requests("nvidia.com/gpu", "3")}}, classes: oneClass,
			want: Demand{"nvidia.com/gpu", "h100", 3}},
		"limit above request": {
			spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
				Limits: list("nvidia.com/gpu", "5"), Requests: list("nvidia.com/gpu", "2")}}}}, classes: oneClass,
			want: Demand{"nvidia.com/gpu", "h100", 5}},
		"two containers": {
			spec: corev1.PodSpec{Containers: []corev1.Container{limits("nvidia.com/gpu", "1"), limits("nvidia.com/gpu", "2")}}, classes: oneClass,
			want: Demand{"nvidia.com/gpu", "h100", 3}},
		"GPUs in an init container only": {
			spec:    corev1.PodSpec{InitContainers: []corev1.Container{limits("nvidia.com/gpu", "2")}, Containers: []corev1.Container{limits("cpu", "1")}},
			classes: oneClass, want: Demand{"nvidia.com/gpu", "h100", 2}},
		"an init container runs before, not beside": {
			spec:    corev1.PodSpec{InitContainers: []corev1.Container{limits("nvidia.com/gpu", "2"), limits("nvidia.com/gpu", "3")}, Containers: []corev1.Container{limits("nvidia.com/gpu", "1")}},
			classes: oneClass, want: Demand{"nvidia.com/gpu", "h100", 3}},
		"a sidecar runs beside": {
			spec:    corev1.PodSpec{InitContainers: []corev1.Container{sidecar(limits("nvidia.com/gpu", "2"))}, Containers: []corev1.Container{limits("nvidia.com/gpu", "1")}},
			classes: oneClass, want: Demand{"nvidia.com/gpu", "h100", 3}},
		"an init container beside an earlier sidecar": {
			spec: corev1.PodSpec{InitContainers: []corev1.Container{
				sidecar(limits("nvidia.com/gpu", "2")), limits("nvidia.com/gpu", "4"), sidecar(limits("nvidia.com/gpu", "1")),
			}, Containers: []corev1.Container{limits("nvidia.com/gpu", "1")}},
			classes: oneClass, want: Demand{"nvidia.com/gpu", "h100", 6}},
		"runtime overhead": {
			spec:    corev1.PodSpec{Containers: []corev1.Container{limits("nvidia.com/gpu", "1")}, Overhead: list("nvidia.com/gpu", "1", "cpu", "1")},
			classes: oneClass, want: Demand{"nvidia.com/gpu", "h100", 2}},
		"a suffix that is whole": {
			spec: corev1.PodSpec{Containers: []corev1.Container{limits("nvidia.com/gpu", "2000m")}}, classes: oneClass,
			want: Demand{"nvidia.com/gpu", "h100", 2}},
		"half a GPU": {
			spec: corev1.PodSpec{Containers: []corev1.Container{limits("nvidia.com/gpu", "500m")}}, classes: oneClass, code: BadQuantity, says: "whole number"},
		"half a GPU in an init container": {
			spec:    corev1.PodSpec{InitContainers: []corev1.Container{requests("nvidia.com/gpu", "1500m")}, Containers: []corev1.Container{{}}},
			classes: oneClass, code: BadQuantity, says: "whole number"},
		"negative": {
			spec: corev1.PodSpec{Containers: []corev1.Container{limits("nvidia.com/gpu", "-1")}}, classes: oneClass, code: BadQuantity, says: "negative"},
		"beyond int64": {
			spec: corev1.PodSpec{Containers: []corev1.Container{limits("nvidia.com/gpu", "10E")}}, classes: oneClass, code: BadQuantity, says: "too large"},
		"sum beyond int64": {
			spec: corev1.PodSpec{Containers: []corev1.Container{limits("nvidia.com/gpu", "9223372036854775807"), limits("nvidia.com/gpu", "1")}}, classes: oneClass,
			code: BadQuantity, says: "add up to more"},
		"sidecar sum beyond int64": {
			spec: corev1.PodSpec{InitContainers: []corev1.Container{sidecar(limits("nvidia.com/gpu", "9223372036854775807")), limits("nvidia.com/gpu", "1")}}, classes: oneClass,
			code: BadQuantity, says: "add up to more"},
		"a GPU that no class lists": {
			spec: corev1.PodSpec{Containers: []corev1.Container{limits("amd.com/gpu", "1")}}, classes: oneClass, code: UnknownResource, says: "operator"},
		"a GPU and no class at all": {
			spec: corev1.PodSpec{Containers: []corev1.Container{limits("nvidia.com/gpu", "1")}}, classes: none, code: UnknownResource, says: "operator"},
		"a MIG slice that no class lists": {
			spec: corev1.PodSpec{Containers: []corev1.Container{limits("nvidia.com/mig-3g.20gb", "1")}}, classes: twoClasses, code: UnknownResource},
		"an extended resource backed by DRA": {
			spec: corev1.PodSpec{Containers: []corev1.Container{limits("deviceclass.resource.kubernetes.io/h100", "1")}}, classes: oneClass, code: UnknownResource},
		"a listed name that does not look like a GPU": {
			spec:    corev1.PodSpec{Containers: []corev1.Container{limits("example.com/accelerator", "1")}},
			classes: []v1alpha1.GPUClass{gpuClass("x", nil, "example.com/accelerator")}, want: Demand{"example.com/accelerator", "x", 1}},
		"resource claims": {
			spec:    corev1.PodSpec{ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu"}}, Containers: []corev1.Container{{}}},
			classes: oneClass, code: ResourceClaims, says: "extended resource"},
		"pod-level GPUs": {
			spec:    corev1.PodSpec{Resources: &corev1.ResourceRequirements{Limits: list("nvidia.com/gpu", "1")}, Containers: []corev1.Container{{}}},
			classes: oneClass, code: PodLevelResource, says: "container"},
		"pod-level cpu beside container GPUs": {
			spec:    corev1.PodSpec{Resources: &corev1.ResourceRequirements{Limits: list("cpu", "8")}, Containers: []corev1.Container{limits("nvidia.com/gpu", "1")}},
			classes: oneClass, want: Demand{"nvidia.com/gpu", "h100", 1}},
		"two kinds of GPU": {
			spec:    corev1.PodSpec{Containers: []corev1.Container{limits("nvidia.com/gpu", "1", "nvidia.com/mig-1g.5gb", "1")}},
			classes: twoClasses, code: SeveralResources, says: "nvidia.com/gpu and nvidia.com/mig-1g.5gb"},
		"only class that lists it": {
			spec: corev1.PodSpec{Containers: []corev1.Container{limits("nvidia.com/mig-1g.5gb", "2")}}, classes: twoClasses,
			want: Demand{"nvidia.com/mig-1g.5gb", "a100", 2}},
		"two classes, none chosen": {
			spec: corev1.PodSpec{Containers: []corev1.Container{limits("nvidia.com/gpu", "1")}}, classes: twoClasses, code: AmbiguousClass, says: "a100, h100"},
		"two classes, chosen by label": {
			spec:   corev1.PodSpec{Containers: []corev1.Container{limits("nvidia.com/gpu", "1")}},
			labels: map[string]string{v1alpha1.ClassLabel: "a100"}, classes: twoClasses, want: Demand{"nvidia.com/gpu", "a100", 1}},
		"two classes, chosen by node selector": {
			spec:    corev1.PodSpec{NodeSelector: map[string]string{"gpu": "h100", "zone": "a"}, Containers: []corev1.Container{limits("nvidia.com/gpu", "1")}},
			classes: twoClasses, want: Demand{"nvidia.com/gpu", "h100", 1}},
		"label names no class": {
			spec:   corev1.PodSpec{Containers: []corev1.Container{limits("nvidia.com/gpu", "1")}},
			labels: map[string]string{v1alpha1.ClassLabel: "b200"}, classes: twoClasses, code: UnknownClass, says: "a100, h100"},
		"label names a class without the resource": {
			spec:   corev1.PodSpec{Containers: []corev1.Container{limits("nvidia.com/mig-1g.5gb", "1")}},
			labels: map[string]string{v1alpha1.ClassLabel: "h100"}, classes: twoClasses, code: ClassMismatch, says: "a100"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := DemandOf(&c.spec, c.labels, c.classes)
			if c.code == "" {
				if err != nil || got != c.want {
					t.Fatalf("DemandOf = %+v, %v; want %+v", got, err, c.want)
				}
				return
			}
			var demandError *DemandError
			if !errors.As(err, &demandError) || demandError.Code != c.code {
				t.Fatalf("DemandOf = %+v, %v; want code %s", got, err, c.code)
			}
			if demandError.Field == "" || !strings.Contains(err.Error(), c.says) {
				t.Errorf("message %q does not say %q", err, c.says)
			}
			if !got.IsZero() {
				t.Errorf("a refused demand is not zero: %+v", got)
			}
		})
	}
}

// The scheduler reserves a node's GPUs by upstream's rule; a hold of another size would be wrong.
func TestDemandAgreesWithTheScheduler(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		container := rapid.Custom(func(t *rapid.T) corev1.Container {
			gpus := strconv.Itoa(rapid.IntRange(0, 8).Draw(t, "gpus"))
			c := corev1.Container{Resources: corev1.ResourceRequirements{
				Limits: list("nvidia.com/gpu", gpus), Requests: list("nvidia.com/gpu", gpus)}}
			if rapid.Bool().Draw(t, "sidecar") {
				c = sidecar(c)
			}
			return c
		})
		spec := corev1.PodSpec{InitContainers: rapid.SliceOfN(container, 0, 5).Draw(t, "init")}
		for _, c := range rapid.SliceOfN(container, 1, 4).Draw(t, "containers") {
			c.RestartPolicy = nil
			spec.Containers = append(spec.Containers, c)
		}
		upstream := podresource.PodRequests(&corev1.Pod{Spec: spec}, podresource.PodResourcesOptions{})["nvidia.com/gpu"]
		got, err := DemandOf(&spec, nil, oneClass)
		if err != nil || got.GPUs != upstream.Value() {
			t.Fatalf("DemandOf = %+v, %v; the scheduler counts %d", got, err, upstream.Value())
		}
	})
}

func TestLooksLikeGPU(t *testing.T) {
	for name, want := range map[string]bool{
		"nvidia.com/gpu": true, "nvidia.com/gpu.shared": true, "nvidia.com/mig-1g.5gb": true, "amd.com/gpu": true,
		"gpu.intel.com/i915": true, "habana.ai/gaudi": true, "aliyun.com/gpu-mem": true, "example.com/GPU": true,
		"gpu.example.com/x": true, "example.com/mig-2g": true, "deviceclass.resource.kubernetes.io/h100": true,
		"cpu": false, "memory": false, "gpu": false, "hugepages-2Mi": false, "rdma/hca": false, "example.com/nic": false,
		"xnvidia.com/card": false, "smarter-devices/fuse": false, "": false,
	} {
		if got := LooksLikeGPU(name); got != want {
			t.Errorf("LooksLikeGPU(%q) = %v", name, got)
		}
	}
}
