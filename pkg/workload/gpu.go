package workload

import "regexp"

// GPUNamePattern matches the extended resources that are taken for GPUs by their name alone: everything in the domains
// of the GPU vendors, MIG slices, and any name with "gpu" in it. The domain deviceclass.resource.kubernetes.io is
// how a pod asks a DRA device class for devices through an ordinary extended resource, so it can hand out GPUs too.
//
// GPUClass accepts only such names, and the webhook is sent every workload that asks for one: a name that no class knows is refused,
// never free. Both repeat the pattern in CEL (RE2, as here); a test compares them with this one.
const GPUNamePattern = `^(nvidia[.]com|amd[.]com|gpu[.]intel[.]com|habana[.]ai|deviceclass[.]resource[.]kubernetes[.]io)/|/mig-|/.*[gG][pP][uU]|[gG][pP][uU].*/`

var gpuName = regexp.MustCompile(GPUNamePattern)

// LooksLikeGPU reports whether an extended resource is a GPU by its name alone.
func LooksLikeGPU(resourceName string) bool { return gpuName.MatchString(resourceName) }
