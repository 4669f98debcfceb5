// Package v1alpha1 is gpubank's Kubernetes API: CreditAccount and GPUClass, which say how things are to be, and CreditGrant,
// CreditTransfer and CreditAdjustment, each of which moves credits once and is immutable.
//
// +kubebuilder:object:generate=true
// +groupName=gpubank.io
package v1alpha1
