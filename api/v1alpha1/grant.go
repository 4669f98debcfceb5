package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CreditGrant gives credits to an account, once: its UID is the ledger's event key.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=cg,categories=gpubank
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Account",type=string,JSONPath=`.spec.account`
// +kubebuilder:printcolumn:name="Credits",type=string,JSONPath=`.spec.credits`
// +kubebuilder:printcolumn:name="Expires",type=string,JSONPath=`.spec.expiresAt`
// +kubebuilder:printcolumn:name="Posted",type=string,JSONPath=`.status.conditions[?(@.type=="Posted")].status`
// +kubebuilder:printcolumn:name="Why",type=string,JSONPath=`.status.conditions[?(@.type=="Posted")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type CreditGrant struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a grant is immutable: credits that were given are corrected by another entry, never by editing this one"
	Spec CreditGrantSpec `json:"spec"`
	// +optional
	Status PostingStatus `json:"status,omitempty"`
}

// CreditGrantSpec is immutable.
type CreditGrantSpec struct {
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="account must be the name of a CreditAccount"
	Account string `json:"account"`
	// Credits to add, more than 0.
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('-') && self.matches('[1-9]')",message="credits must be more than 0"
	// +kubebuilder:validation:XValidation:rule="self.matches('^-?([0-3]?[0-9]{1,12}([.][0-9]+)?|4000000000000([.]0+)?)$')",message="credits must be at most 4000000000000, the most that the ledger keeps"
	Credits Credits `json:"credits"`
	// ExpiresAt is when whatever was neither spent nor held of these credits is taken back. What a hold took stays usable by
	// it. Without it the credits stay.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})$`
	// +kubebuilder:validation:XValidation:rule="self >= timestamp('2000-01-01T00:00:00Z') && self < timestamp('2200-01-01T00:00:00Z')",message="expiresAt must be a time such as 2027-04-01T00:00:00Z, in the years 2000 to 2199"
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`
	// Reason is shown in the account's statement.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="!self.contains('\\u0000')",message="reason must be text, without a NUL character"
	Reason string `json:"reason"`
}

// CreditGrantList is a list of CreditGrant.
// +kubebuilder:object:root=true
type CreditGrantList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CreditGrant `json:"items"`
}

// PostingStatus says whether the ledger has the entry.
type PostingStatus struct {
	// Conditions: Posted (true once the ledger has committed it; false with the reason while it cannot, or where it never
	// will).
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
