//go:build tools

// Package kueue pins the Kueue manager that the tests run: an operator's own Kueue, at one known version, built from the
// module proxy with the libraries it pins itself (Kubernetes v0.35), hence a module of its own.
package kueue

import (
	_ "sigs.k8s.io/kueue/cmd/kueue"
)
