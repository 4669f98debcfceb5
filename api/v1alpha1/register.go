package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is gpubank.io/v1alpha1.
	GroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

	schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)
	// AddToScheme adds this package's types to a scheme.
	AddToScheme = schemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&CreditAccount{}, &CreditAccountList{},
		&CreditGrant{}, &CreditGrantList{},
		&CreditTransfer{}, &CreditTransferList{},
		&CreditAdjustment{}, &CreditAdjustmentList{},
		&GPUClass{}, &GPUClassList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
