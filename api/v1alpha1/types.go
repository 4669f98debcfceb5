package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Credits is an amount of credits in decimal notation with at most six decimals, such as "10000" or "0.25".
// It is a string because money has no "roughly": no float and no unit suffix ever touches it.
// ---
// It holds whatever the ledger may have to say of an account, so that no status is ever unwritable: the ledger keeps
// balances and reserved sums within ±4,000,000,000,000 credits, and what is available is the one less the other, so down
// to twice that below zero. What people write has narrower rules of its own.
// +kubebuilder:validation:Pattern=`^-?[0-9]{1,13}(\.[0-9]{1,6})?$`
// +kubebuilder:validation:MaxLength=21
type Credits string

// CreditAccount is who pays for GPU time.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=ca,categories=gpubank
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Parent",type=string,JSONPath=`.spec.parent`
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.available`
// +kubebuilder:printcolumn:name="Reserved",type=string,JSONPath=`.status.reserved`
// +kubebuilder:printcolumn:name="Charged",type=string,JSONPath=`.status.charged`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="an account's name is also the value of the label gpubank.io/account, so it has at most 63 characters"
// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.parent) || self.spec.parent != self.metadata.name",message="an account cannot be its own parent"
type CreditAccount struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec CreditAccountSpec `json:"spec,omitempty"`
	// +optional
	Status CreditAccountStatus `json:"status,omitempty"`
}

// CreditAccountSpec is what the account's owner decides.
type CreditAccountSpec struct {
	// Parent is the account above this one. Its limits, and those of every account above it, bound this one too.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Parent string `json:"parent,omitempty"`
	// Namespaces lists the namespaces this account pays for. A namespace is charged only if it is listed here and
	// carries the label gpubank.io/account with this account's name: both sides must agree.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=63
	Namespaces []string `json:"namespaces,omitempty"`
	// +optional
	Policy AccountPolicy `json:"policy,omitempty"`
}

// AccountPolicy is what the ledger is told together with the account.
type AccountPolicy struct {
	// DefaultMaxRuntime bounds a pod that declares neither activeDeadlineSeconds nor the annotation
	// gpubank.io/max-runtime. Without it, such a pod is refused. Whole seconds, 1s to 8760h.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('8760h')",message="defaultMaxRuntime must be between 1s and 8760h"
	DefaultMaxRuntime *metav1.Duration `json:"defaultMaxRuntime,omitempty"`
	// OverdraftLimit is how far below zero holds may take the available credits, "0" or more.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('-')",message="overdraftLimit must not be negative"
	// +kubebuilder:validation:XValidation:rule="self.matches('^-?([0-3]?[0-9]{1,12}([.][0-9]+)?|4000000000000([.]0+)?)$')",message="overdraftLimit must be at most 4000000000000, the most that the ledger keeps"
	OverdraftLimit Credits `json:"overdraftLimit,omitempty"`
}

// CreditAccountStatus is the ledger's projection of the account, written by the controller.
type CreditAccountStatus struct {
	// Available = balance − reserved: what new jobs may still reserve, before overdraft.
	// +optional
	Available Credits `json:"available,omitempty"`
	// +optional
	Balance Credits `json:"balance,omitempty"`
	// +optional
	Reserved Credits `json:"reserved,omitempty"`
	// +optional
	Charged Credits `json:"charged,omitempty"`
	// LedgerRevision is the ledger row's revision that the amounts were read at; it only grows.
	// +optional
	LedgerRevision int64 `json:"ledgerRevision,omitempty"`
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions: Ready (the ledger knows the account as specified), Deletable (false, with the reason, while
	// deletion is refused).
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// CreditAccountList is a list of CreditAccount.
// +kubebuilder:object:root=true
type CreditAccountList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CreditAccount `json:"items"`
}

// CreditGrant gives credits to an account, once: its UID is the ledger's event key.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=cg,categories=gpubank
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Account",type=string,JSONPath=`.spec.account`
// +kubebuilder:printcolumn:name="Credits",type=string,JSONPath=`.spec.credits`
// +kubebuilder:printcolumn:name="Posted",type=string,JSONPath=`.status.conditions[?(@.type=="Posted")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type CreditGrant struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a grant is immutable: credits that were given are corrected by another entry, never by editing this one"
	Spec CreditGrantSpec `json:"spec"`
	// +optional
	Status CreditGrantStatus `json:"status,omitempty"`
}

// CreditGrantSpec is immutable.
type CreditGrantSpec struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Account string `json:"account"`
	// Credits to add, more than 0.
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('-') && self.matches('[1-9]')",message="credits must be more than 0"
	// +kubebuilder:validation:XValidation:rule="self.matches('^-?([0-3]?[0-9]{1,12}([.][0-9]+)?|4000000000000([.]0+)?)$')",message="credits must be at most 4000000000000, the most that the ledger keeps"
	Credits Credits `json:"credits"`
	// Reason is shown in the account's statement.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Reason string `json:"reason"`
}

// CreditGrantStatus says whether the ledger has the grant.
type CreditGrantStatus struct {
	// Conditions: Posted (true once the ledger has committed the entry; false with the reason while it cannot).
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// CreditGrantList is a list of CreditGrant.
// +kubebuilder:object:root=true
type CreditGrantList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CreditGrant `json:"items"`
}

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
