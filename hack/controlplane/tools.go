//go:build tools

// Package controlplane pins the control-plane programs that the tests, the demo and `make up` run:
// what an operator's cluster runs, at one known version, built from the module proxy.
package controlplane

import (
	_ "go.etcd.io/etcd/server/v3"
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kube-scheduler"
	_ "k8s.io/kubernetes/cmd/kubectl"
)
