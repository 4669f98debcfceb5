// Package binaries builds programs once and keeps them: the control plane's (etcd, kube-apiserver, …) at the one
// version that hack/controlplane/go.mod pins, shared by all checkouts of this user; and gpubank's own commands, per
// checkout. It uses only the standard library, so that its progress is on screen within a second of `make`.
//
// A program appears under its name only when it is complete, and a lock keeps two builds of the same folder apart.
package binaries
