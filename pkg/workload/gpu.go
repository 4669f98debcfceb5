package workload

import "strings"

// gpuDomains are the domains whose every extended resource is taken for a GPU. The last one is how a pod asks a
// DRA device class for devices through an ordinary extended resource, so it can hand out GPUs too.
var gpuDomains = []string{
	"nvidia.com/",
	"amd.com/",
	"gpu.intel.com/",
	"habana.ai/",
	"deviceclass.resource.kubernetes.io/",
}

// LooksLikeGPU reports whether an extended resource is a GPU by its name alone. GPUClass accepts only such names and
// the webhook is sent every workload that asks for one, so what no class knows yet is refused, never free. The CRD's rule
// and the webhook's match conditions say the same in CEL; a test compares the three.
func LooksLikeGPU(resourceName string) bool {
	if !strings.Contains(resourceName, "/") {
		return false
	}
	for _, domain := range gpuDomains {
		if strings.HasPrefix(resourceName, domain) {
			return true
		}
	}
	return strings.Contains(strings.ToLower(resourceName), "gpu") || strings.Contains(resourceName, "/mig-")
}
