package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// GPUClass says which resource names on which nodes are one kind of GPU, and what a second of it costs.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=gc,categories=gpubank
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Resources",type=string,JSONPath=`.spec.resourceNames`
// +kubebuilder:printcolumn:name="Rate",type=string,JSONPath=`.spec.creditsPerGPUSecond`
// +kubebuilder:printcolumn:name="Version",type=integer,JSONPath=`.status.rateVersion`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="a class's name is also the value of the label gpubank.io/gpu-class, so it has at most 63 characters"
type GPUClass struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec GPUClassSpec `json:"spec"`
	// +optional
	Status GPUClassStatus `json:"status,omitempty"`
}

// GPUClassSpec describes the class.
type GPUClassSpec struct {
	// ResourceNames are the extended resources that count as GPUs of this class, such as nvidia.com/gpu. Each name must
	// look like a GPU: the API server sends the webhook only such workloads, so one of another name would run for free.
	// +kubebuilder:validation:XValidation:rule="self.all(name, name.matches('^(nvidia[.]com|amd[.]com|gpu[.]intel[.]com|habana[.]ai|deviceclass[.]resource[.]kubernetes[.]io)/|/mig-|/.*[gG][pP][uU]|[gG][pP][uU].*/'))",message="each resource name must be in a GPU vendor's domain (nvidia.com, amd.com, gpu.intel.com, habana.ai), a MIG slice, or contain \"gpu\""
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +listType=set
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9.-]+/[A-Za-z0-9._-]+$`
	ResourceNames []string `json:"resourceNames"`
	// NodeSelector picks the class's nodes by label; empty means every node that offers one of ResourceNames.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// CreditsPerGPUSecond is the price. Changing it makes a new rate version; what already runs keeps its own.
	// +kubebuilder:default="1"
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('-') && self.matches('[1-9]')",message="creditsPerGPUSecond must be more than 0"
	CreditsPerGPUSecond Credits `json:"creditsPerGPUSecond"`
}

// GPUClassStatus is written by the controller.
type GPUClassStatus struct {
	// RateVersion is the ledger's version of the current price.
	// +optional
	RateVersion int64 `json:"rateVersion,omitempty"`
	// Conditions: Ready (the ledger knows the current price).
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// GPUClassList is a list of GPUClass.
// +kubebuilder:object:root=true
type GPUClassList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []GPUClass `json:"items"`
}
