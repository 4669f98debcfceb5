// Package v1alpha1 is gpubank's Kubernetes API: CreditAccount, CreditGrant and GPUClass.
//
// +kubebuilder:object:generate=true
// +groupName=gpubank.io
package v1alpha1
