package clustertest

import (
	"testing"

	"github.com/gpubank/gpubank/test/cluster"
)

var sharedControlPlane started[*cluster.ControlPlane]

// ControlPlane is the etcd, API server and controller manager that all tests of this package share. Tests keep apart
// by namespace. One that stops a part wants OwnControlPlane instead.
func ControlPlane(t testing.TB) *cluster.ControlPlane {
	t.Helper()
	sharedControlPlane.once.Do(func() {
		sharedControlPlane.part, sharedControlPlane.err = cluster.StartControlPlane(t.Context(), cluster.ControlPlaneOptions{})
		if sharedControlPlane.err == nil {
			atEnd(t, sharedControlPlane.part.Close)
		}
	})
	if sharedControlPlane.err != nil {
		t.Fatal(sharedControlPlane.err)
	}
	t.Cleanup(func() { showLogs(t, sharedControlPlane.part.Processes()...) })
	return sharedControlPlane.part
}

// OwnControlPlane starts a control plane for this test alone, whose parts it may stop, kill and start again.
func OwnControlPlane(t testing.TB, options cluster.ControlPlaneOptions) *cluster.ControlPlane {
	t.Helper()
	cp, err := cluster.StartControlPlane(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		showLogs(t, cp.Processes()...)
		if err := cp.Close(); err != nil {
			t.Error(err)
		}
	})
	return cp
}
