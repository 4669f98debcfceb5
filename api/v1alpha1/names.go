package v1alpha1

// Names that users, manifests and every part of gpubank share.
const (
	// GroupName is the API group.
	GroupName = "gpubank.io"
	// SystemNamespace is where gpubank's own parts run.
	SystemNamespace = "gpubank-system"
	// SchedulerName is the schedulerName of pods that gpubank places.
	SchedulerName = "gpubank-scheduler"

	// AccountLabel on a Namespace enrols it; on a workload it is set by the webhook from the namespace, and any other
	// value is refused.
	AccountLabel = "gpubank.io/account"
	// ClassLabel on a pod (or a Job's pod template) chooses a GPUClass where several offer the same resource name.
	ClassLabel = "gpubank.io/gpu-class"
	// FloorLabel on a pod (or a Job's pod template) names the floor of its account that it belongs to; see GPUFloor.
	FloorLabel = "gpubank.io/floor"
	// MemoryLabel on a pod is the least memory that each of its GPUs must have, as a quantity such as 40Gi. It chooses among a class's nodes,
	// by what they state in NodeMemoryLabel.
	MemoryLabel = "gpubank.io/gpu-memory"
	// NodeMemoryLabel on a node is the memory of each of its GPUs, in MiB. NVIDIA's GPU feature discovery sets it.
	NodeMemoryLabel = "nvidia.com/gpu.memory"
	// MaxRuntimeAnnotation bounds one pod's run time, as a duration such as 90m or as whole seconds.
	MaxRuntimeAnnotation = "gpubank.io/max-runtime"
	// GangAnnotation with the value "true" on a Job says that its pods are placed together or not at all.
	GangAnnotation = "gpubank.io/gang"
	// GangRestartAnnotation on a gang's Job or PodGroup says what becomes of the other members when one dies: GangRestartAlone,
	// the default, nothing; GangRestartTogether, they are deleted, so that all are made and placed anew.
	GangRestartAnnotation = "gpubank.io/gang-restart"
	GangRestartAlone      = "Alone"
	GangRestartTogether   = "Together"
	// MeteringFinalizer on a pod keeps the object until its held time is settled, so that neither its finish nor its
	// GPUs on a silent node can be lost. See docs/designs/pod-finalizer.md.
	MeteringFinalizer = "gpubank.io/metering"
	// AccountFinalizer on a CreditAccount keeps it while the ledger has history for it.
	AccountFinalizer = "gpubank.io/account"

	// The types of status conditions. ConditionPosted is that of what is posted once; the others are an account's, and
	// ConditionReady also a class's.
	ConditionReady     = "Ready"
	ConditionPosted    = "Posted"
	ConditionDeletable = "Deletable"
	ConditionFrozen    = "Frozen"
	ConditionOverdrawn = "Overdrawn"
)
