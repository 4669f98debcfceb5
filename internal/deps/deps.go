//go:build tools

// Package deps keeps modules in go.mod that no code imports yet, at versions that resolve together with the rest, so that
// `go mod tidy` leaves them. It is never compiled.
package deps

import (
	_ "github.com/cockroachdb/datadriven"
	_ "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
)
