package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CreditTransfer moves credits from one account to another, once: its UID is the ledger's event key. Credits that expire
// keep their expiry. Deleting it moves nothing back.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=ct,categories=gpubank
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="From",type=string,JSONPath=`.spec.from`
// +kubebuilder:printcolumn:name="To",type=string,JSONPath=`.spec.to`
// +kubebuilder:printcolumn:name="Credits",type=string,JSONPath=`.spec.credits`
// +kubebuilder:printcolumn:name="Posted",type=string,JSONPath=`.status.conditions[?(@.type=="Posted")].status`
// +kubebuilder:printcolumn:name="Why",type=string,JSONPath=`.status.conditions[?(@.type=="Posted")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type CreditTransfer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a transfer is immutable: credits that were moved are moved back by another transfer, never by editing this one"
	// +kubebuilder:validation:XValidation:rule="self.from != self.to",message="from and to must be two accounts"
	Spec CreditTransferSpec `json:"spec"`
	// +optional
	Status PostingStatus `json:"status,omitempty"`
}

// CreditTransferSpec is immutable.
type CreditTransferSpec struct {
	// From is the account that gives. It must have the credits available without its overdraft.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="from must be the name of a CreditAccount"
	From string `json:"from"`
	// To is the account that receives.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="to must be the name of a CreditAccount"
	To string `json:"to"`
	// Credits to move, more than 0.
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('-') && self.matches('[1-9]')",message="credits must be more than 0"
	// +kubebuilder:validation:XValidation:rule="self.matches('^-?([0-3]?[0-9]{1,12}([.][0-9]+)?|4000000000000([.]0+)?)$')",message="credits must be at most 4000000000000, the most that the ledger keeps"
	Credits Credits `json:"credits"`
	// Reason is shown in both accounts' statements.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="!self.contains('\\u0000')",message="reason must be text, without a NUL character"
	Reason string `json:"reason"`
}

// CreditTransferList is a list of CreditTransfer.
// +kubebuilder:object:root=true
type CreditTransferList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CreditTransfer `json:"items"`
}
