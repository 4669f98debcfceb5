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
// +kubebuilder:printcolumn:name="Running",type=integer,JSONPath=`.status.running`
// +kubebuilder:printcolumn:name="Frozen",type=string,JSONPath=`.status.conditions[?(@.type=="Frozen")].status`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="an account's name is also the value of the label gpubank.io/account, so it has at most 63 characters"
// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.parent) || self.spec.parent != self.metadata.name",message="an account cannot be its own parent"
type CreditAccount struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +kubebuilder:default={}
	Spec CreditAccountSpec `json:"spec,omitempty"`
	// +optional
	Status CreditAccountStatus `json:"status,omitempty"`
}

// CreditAccountSpec is what the account's owner decides.
type CreditAccountSpec struct {
	// Parent is the account above this one. Its limits, and those of every account above it, bound this one too.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == '' || self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="parent must be the name of a CreditAccount"
	Parent string `json:"parent,omitempty"`
	// Namespaces lists the namespaces this account pays for. A namespace is charged only if it is listed here and
	// carries the label gpubank.io/account with this account's name: both sides must agree.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=63
	Namespaces []string `json:"namespaces,omitempty"`
	// Policy is what the ledger is told together with the account.
	// +optional
	// +kubebuilder:default={}
	Policy AccountPolicy `json:"policy,omitempty"`
}

// CreditAccountStatus is the ledger's projection of the account, written by the controller.
type CreditAccountStatus struct {
	// Available = balance − reserved: what new jobs may still reserve, before overdraft.
	// +optional
	Available Credits `json:"available,omitempty"`
	// Balance is the sum of all entries of the account.
	// +optional
	Balance Credits `json:"balance,omitempty"`
	// Reserved is what open holds that the account pays for still set aside.
	// +optional
	Reserved Credits `json:"reserved,omitempty"`
	// Charged is what the account's own workloads were charged since it began, less refunds, whoever paid.
	// +optional
	Charged Credits `json:"charged,omitempty"`
	// Held is what open holds of the account's own workloads still set aside, whoever pays.
	// +optional
	Held Credits `json:"held,omitempty"`
	// Running is how many workloads of this account and everything below it run: what policy.runningJobs bounds.
	// +optional
	Running int64 `json:"running"`
	// Spending is what policy.spending counts of this account and everything below it; absent without such a limit.
	// +optional
	Spending *SpendingStatus `json:"spending,omitempty"`
	// LedgerRevision is the ledger row's revision that the amounts were read at; it only grows.
	// +optional
	LedgerRevision int64 `json:"ledgerRevision,omitempty"`
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions: Ready (the ledger knows the account as specified), Deletable (false, with the reason, while
	// deletion is refused), Frozen (true, with the reason, while nothing may be held or moved by hand) and Overdrawn (true
	// while the account is below its overdraft limit, so that it can pay for no hold).
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// SpendingStatus is what counts against a spending limit.
type SpendingStatus struct {
	// Since is when the period began.
	Since metav1.Time `json:"since"`
	// Spent is what was charged since then, less refunds.
	Spent Credits `json:"spent"`
	// Held is what open holds still set aside.
	Held Credits `json:"held"`
	// Left = limit − spent − held. Usage beyond a hold, which is never refused, may take it below zero.
	Left Credits `json:"left"`
}

// CreditAccountList is a list of CreditAccount.
// +kubebuilder:object:root=true
type CreditAccountList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CreditAccount `json:"items"`
}
