//go:build tools

// Package deps keeps modules in go.mod that no code imports yet, so that `go mod tidy` leaves their versions pinned. It
// is never compiled: some of them need cgo.
package deps

import (
	_ "github.com/NVIDIA/go-nvml/pkg/nvml"
	_ "github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxh100"
	_ "github.com/Shopify/toxiproxy/v2"
	_ "github.com/cockroachdb/datadriven"
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/open-policy-agent/cert-controller/pkg/rotator"
	_ "github.com/pressly/goose/v3"
	_ "github.com/prometheus/client_golang/prometheus"
	_ "github.com/spf13/cobra"
	_ "go.etcd.io/bbolt"
	_ "golang.org/x/sync/errgroup"
	_ "google.golang.org/grpc"
	_ "k8s.io/kubelet/pkg/apis/podresources/v1"
	_ "k8s.io/kubernetes/cmd/kube-scheduler/app"
	_ "k8s.io/kubernetes/pkg/kubelet/apis/podresources"
	_ "k8s.io/kubernetes/test/integration/scheduler_perf"
	_ "k8s.io/utils/clock"
	_ "pgregory.net/rapid"
	_ "sigs.k8s.io/controller-runtime"
	_ "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	_ "sigs.k8s.io/kustomize/api/krusty"
	_ "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
)
