package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CreditAdjustment corrects an account by a new entry, once: its UID is the ledger's event key. It may close a discrepancy.
// Deleting it corrects nothing back.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=cadj,categories=gpubank
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Account",type=string,JSONPath=`.spec.account`
// +kubebuilder:printcolumn:name="Credits",type=string,JSONPath=`.spec.credits`
// +kubebuilder:printcolumn:name="Corrects",type=integer,JSONPath=`.spec.corrects`
// +kubebuilder:printcolumn:name="Posted",type=string,JSONPath=`.status.conditions[?(@.type=="Posted")].status`
// +kubebuilder:printcolumn:name="Why",type=string,JSONPath=`.status.conditions[?(@.type=="Posted")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type CreditAdjustment struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="an adjustment is immutable: one that was wrong is corrected by another adjustment, never by editing this one"
	// +kubebuilder:validation:XValidation:rule="self.credits.matches('[1-9]') || (has(self.discrepancy) && self.discrepancy != '')",message="credits may be 0 only where discrepancy names what the adjustment closes: it changes nothing else"
	// +kubebuilder:validation:XValidation:rule="self.credits.matches('[1-9]') || !has(self.corrects)",message="an adjustment of 0 credits corrects no entry; leave corrects out"
	Spec CreditAdjustmentSpec `json:"spec"`
	// +optional
	Status PostingStatus `json:"status,omitempty"`
}

// CreditAdjustmentSpec is immutable.
type CreditAdjustmentSpec struct {
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="account must be the name of a CreditAccount"
	Account string `json:"account"`
	// Credits are added to the balance, whatever it is; a negative amount is taken away. "0" only closes a discrepancy.
	// +kubebuilder:validation:XValidation:rule="self.matches('^-?([0-3]?[0-9]{1,12}([.][0-9]+)?|4000000000000([.]0+)?)$')",message="credits must be within ±4000000000000, the most that the ledger keeps"
	Credits Credits `json:"credits"`
	// Corrects is the number of the account's entry that was wrong, as its statement shows it.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Corrects int64 `json:"corrects,omitempty"`
	// Discrepancy is the key of the disagreement that this closes, as kubectl credit discrepancies shows it.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="!self.contains('\\u0000')",message="discrepancy must be text, without a NUL character"
	Discrepancy string `json:"discrepancy,omitempty"`
	// Reason is shown in the account's statement.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="!self.contains('\\u0000')",message="reason must be text, without a NUL character"
	Reason string `json:"reason"`
}

// CreditAdjustmentList is a list of CreditAdjustment.
// +kubebuilder:object:root=true
type CreditAdjustmentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CreditAdjustment `json:"items"`
}
