package workload

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpubank/gpubank/api/v1alpha1"
)

// Demand is how many GPUs of which class one pod holds from its start to its end. The zero Demand is a pod without
// GPUs.
type Demand struct {
	// Resource is the extended resource asked for, such as nvidia.com/gpu.
	Resource string
	// Class is the GPUClass's name.
	Class string
	// GPUs is 1 or more, or 0 for a pod without GPUs.
	GPUs int64
}

// IsZero reports whether the pod asks for no GPU.
func (d Demand) IsZero() bool { return d.GPUs == 0 }

// DemandCode says why a pod's demand cannot be told. Codes are stable; messages are for people.
type DemandCode string

const (
	// UnknownResource: the name looks like a GPU and no GPUClass lists it.
	UnknownResource DemandCode = "UnknownResource"
	// UnknownClass: the pod's class label names no GPUClass.
	UnknownClass DemandCode = "UnknownClass"
	// ClassMismatch: the labelled class does not offer the resource.
	ClassMismatch DemandCode = "ClassMismatch"
	// AmbiguousClass: several classes offer the resource and the pod does not say which.
	AmbiguousClass DemandCode = "AmbiguousClass"
	// SeveralResources: GPUs under more than one resource name; one pod has one class and one price.
	SeveralResources DemandCode = "SeveralResources"
	// ResourceClaims: devices asked for through DRA claims, which are not metered.
	ResourceClaims DemandCode = "ResourceClaims"
	// BadQuantity: not a whole number of GPUs, negative, or beyond int64.
	BadQuantity DemandCode = "BadQuantity"
	// PodLevelResource: GPUs in the pod-level resources field, where only cpu, memory and hugepages are possible.
	PodLevelResource DemandCode = "PodLevelResource"
)

// DemandError is a demand that cannot be told from the pod's own fields. It is the user's to correct.
type DemandError struct {
	Code    DemandCode
	Field   string // relative to the pod, such as spec.containers[0].resources
	Message string // what is wrong and what to set
}

func (e *DemandError) Error() string { return fmt.Sprintf("%s: %s", e.Field, e.Message) }

// DemandOf tells the GPUs of a pod. Limits and requests both count, whichever is larger, because limits alone imply
// requests and a Job's template is not defaulted. Init containers and sidecars count by the scheduler's own rule: init
// containers run one after another beside the sidecars started before them. The error, if any, is a *DemandError.
func DemandOf(spec *corev1.PodSpec, podLabels map[string]string, classes []v1alpha1.GPUClass) (Demand, error) {
	if len(spec.ResourceClaims) > 0 {
		return Demand{}, &DemandError{
			Code: ResourceClaims, Field: "spec.resourceClaims",
			Message: "devices requested through resource claims are not metered; request GPUs as an extended resource in resources.limits instead",
		}
	}
	listed := listedResources(classes)
	isGPU := func(name string) bool { return listed[name] || LooksLikeGPU(name) }
	if spec.Resources != nil {
		for _, list := range []corev1.ResourceList{spec.Resources.Limits, spec.Resources.Requests} {
			for name := range list {
				if isGPU(string(name)) {
					return Demand{}, &DemandError{
						Code: PodLevelResource, Field: "spec.resources",
						Message: fmt.Sprintf("%s cannot be requested for the pod as a whole; set it in a container's resources.limits", name),
					}
				}
			}
		}
	}

	perResource, err := countGPUs(spec, isGPU)
	if err != nil {
		return Demand{}, err
	}
	names := slices.Sorted(maps.Keys(perResource))
	switch len(names) {
	case 0:
		return Demand{}, nil
	case 1:
	default:
		return Demand{}, &DemandError{
			Code: SeveralResources, Field: "spec.containers",
			Message: fmt.Sprintf("the pod asks for %s; a pod holds GPUs under one resource name, so split it into one pod per name", strings.Join(names, " and ")),
		}
	}
	class, err := classOf(names[0], spec, podLabels, classes)
	if err != nil {
		return Demand{}, err
	}
	return Demand{Resource: names[0], Class: class, GPUs: perResource[names[0]]}, nil
}

func listedResources(classes []v1alpha1.GPUClass) map[string]bool {
	listed := map[string]bool{}
	for i := range classes {
		for _, name := range classes[i].Spec.ResourceNames {
			listed[name] = true
		}
	}
	return listed
}

// countGPUs is upstream's PodRequests for GPU names only, in checked int64 instead of resource.Quantity, whose sums
// saturate or lose precision silently. Names with a zero sum are left out.
func countGPUs(spec *corev1.PodSpec, isGPU func(string) bool) (map[string]int64, error) {
	running, sidecars, peak := map[string]int64{}, map[string]int64{}, map[string]int64{}
	for i := range spec.Containers {
		field := fmt.Sprintf("spec.containers[%d].resources", i)
		asked, err := containerGPUs(&spec.Containers[i], field, isGPU)
		if err != nil {
			return nil, err
		}
		if err := addInto(running, asked, field); err != nil {
			return nil, err
		}
	}
	for i := range spec.InitContainers {
		container := &spec.InitContainers[i]
		field := fmt.Sprintf("spec.initContainers[%d].resources", i)
		asked, err := containerGPUs(container, field, isGPU)
		if err != nil {
			return nil, err
		}
		during := maps.Clone(sidecars)
		if err := addInto(during, asked, field); err != nil {
			return nil, err
		}
		if isSidecar(container) {
			if err := addInto(running, asked, field); err != nil {
				return nil, err
			}
			sidecars = during
		}
		for name, gpus := range during {
			peak[name] = max(peak[name], gpus)
		}
	}
	for name, gpus := range peak {
		running[name] = max(running[name], gpus)
	}
	for name, quantity := range spec.Overhead {
		if !isGPU(string(name)) {
			continue
		}
		gpus, err := wholeGPUs(string(name), quantity, "spec.overhead")
		if err != nil {
			return nil, err
		}
		if err := addInto(running, map[string]int64{string(name): gpus}, "spec.overhead"); err != nil {
			return nil, err
		}
	}
	maps.DeleteFunc(running, func(_ string, gpus int64) bool { return gpus == 0 })
	return running, nil
}

func isSidecar(container *corev1.Container) bool {
	return container.RestartPolicy != nil && *container.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

func containerGPUs(container *corev1.Container, field string, isGPU func(string) bool) (map[string]int64, error) {
	asked := map[string]int64{}
	for _, list := range []corev1.ResourceList{container.Resources.Limits, container.Resources.Requests} {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			if !isGPU(string(name)) {
				continue
			}
			gpus, err := wholeGPUs(string(name), list[name], field)
			if err != nil {
				return nil, err
			}
			asked[string(name)] = max(asked[string(name)], gpus)
		}
	}
	return asked, nil
}

func wholeGPUs(name string, quantity resource.Quantity, field string) (int64, error) {
	bad := func(what string) (int64, error) {
		return 0, &DemandError{
			Code: BadQuantity, Field: field,
			Message: fmt.Sprintf("%s: %q is %s; set a whole number of GPUs", name, quantity.String(), what),
		}
	}
	if quantity.Sign() < 0 {
		return bad("negative")
	}
	// Value rounds up and wraps beyond int64, so it is right exactly when it compares equal.
	value := quantity.Value()
	if resource.NewQuantity(value, resource.DecimalSI).Cmp(quantity) == 0 {
		return value, nil
	}
	if quantity.Cmp(*resource.NewQuantity(math.MaxInt64, resource.DecimalSI)) > 0 {
		return bad("too large")
	}
	return bad("not a whole number")
}

func addInto(sum, more map[string]int64, field string) error {
	for name, gpus := range more {
		if sum[name] > math.MaxInt64-gpus {
			return &DemandError{
				Code: BadQuantity, Field: field,
				Message: fmt.Sprintf("the pod's %s add up to more than %d; ask for fewer", name, int64(math.MaxInt64)),
			}
		}
		sum[name] += gpus
	}
	return nil
}

// classOf picks the class: the label's, else the only one that offers the resource, else the only one whose node selector the
// pod's own contains.
func classOf(resourceName string, spec *corev1.PodSpec, podLabels map[string]string, classes []v1alpha1.GPUClass) (string, error) {
	const labelField = "metadata.labels[" + v1alpha1.ClassLabel + "]"
	var offering, selected []string
	for i := range classes {
		if !slices.Contains(classes[i].Spec.ResourceNames, resourceName) {
			continue
		}
		offering = append(offering, classes[i].Name)
		if contains(spec.NodeSelector, classes[i].Spec.NodeSelector) {
			selected = append(selected, classes[i].Name)
		}
	}
	slices.Sort(offering)

	if label, set := podLabels[v1alpha1.ClassLabel]; set {
		if slices.Contains(offering, label) {
			return label, nil
		}
		if !slices.ContainsFunc(classes, func(c v1alpha1.GPUClass) bool { return c.Name == label }) {
			return "", &DemandError{
				Code: UnknownClass, Field: labelField,
				Message: fmt.Sprintf("there is no GPUClass %q; %s", label, choose(resourceName, offering)),
			}
		}
		return "", &DemandError{
			Code: ClassMismatch, Field: labelField,
			Message: fmt.Sprintf("GPUClass %q does not offer %s; %s", label, resourceName, choose(resourceName, offering)),
		}
	}
	switch {
	case len(offering) == 0:
		return "", &DemandError{
			Code: UnknownResource, Field: "spec.containers",
			Message: fmt.Sprintf("no GPUClass lists the resource %s, so it has no price; ask the cluster's operator to add it to one", resourceName),
		}
	case len(offering) == 1:
		return offering[0], nil
	case len(selected) == 1:
		return selected[0], nil
	}
	return "", &DemandError{
		Code: AmbiguousClass, Field: labelField,
		Message: fmt.Sprintf("several GPUClasses offer %s; %s", resourceName, choose(resourceName, offering)),
	}
}

func choose(resourceName string, offering []string) string {
	if len(offering) == 0 {
		return fmt.Sprintf("no class lists %s, so ask the cluster's operator to add it to one", resourceName)
	}
	return fmt.Sprintf("set the pod's label %s to one of: %s", v1alpha1.ClassLabel, strings.Join(offering, ", "))
}

// contains reports whether every pair of sub is in all.
func contains(all, sub map[string]string) bool {
	for key, value := range sub {
		if got, ok := all[key]; !ok || got != value {
			return false
		}
	}
	return true
}
