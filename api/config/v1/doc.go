// Package v1 holds the arguments of gpubank's scheduler plugins, as they are written under pluginConfig in an ordinary
// KubeSchedulerConfiguration. They are registered in kube-scheduler's own configuration group, because that is where it
// looks for a kind named after the plugin: an unknown field is then an error at start, not a setting that does nothing.
//
// +kubebuilder:object:generate=true
package v1
