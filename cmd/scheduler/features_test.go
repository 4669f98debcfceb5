package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	"k8s.io/kubernetes/pkg/features"
)

// What servers of the three supported minors serve by default, of the APIs that matter here.
var (
	dra  = []string{"resourceclaims.v1.resource.k8s.io", "resourceslices.v1.resource.k8s.io", "deviceclasses.v1.resource.k8s.io"}
	v135 = dra
	v136 = dra
	v137 = append([]string{"devicetaintrules.v1.resource.k8s.io"}, dra...)
	all  = append([]string{"podgroups.v1beta1.scheduling.k8s.io", "compositepodgroups.v1alpha3.scheduling.k8s.io", "leasecandidates.v1beta1.coordination.k8s.io"}, v137...)
)

func TestDecideGates(t *testing.T) {
	for _, tc := range []struct {
		name    string
		served  []string
		enabled []featuregate.Feature // beside the defaults of 1.37
		want    gateDecision
	}{
		{"1.35", v135, nil, gateDecision{
			off: []string{"DRADeviceTaintRules"}, absent: []string{"devicetaintrules.v1.resource.k8s.io"},
		}},
		{"1.36", v136, nil, gateDecision{
			off: []string{"DRADeviceTaintRules"}, absent: []string{"devicetaintrules.v1.resource.k8s.io"},
		}},
		{"1.37", v137, nil, gateDecision{}},
		{"1.37 with features asked for whose APIs are off by default", v137,
			[]featuregate.Feature{features.GenericWorkload, features.TopologyAwareWorkloadScheduling, features.CompositePodGroup, features.DRAWorkloadResourceClaims},
			gateDecision{
				off:    []string{"CompositePodGroup", "DRAWorkloadResourceClaims", "GenericWorkload", "TopologyAwareWorkloadScheduling"},
				absent: []string{"compositepodgroups.v1alpha3.scheduling.k8s.io", "podgroups.v1beta1.scheduling.k8s.io"},
			}},
		{"1.37 with everything", all,
			[]featuregate.Feature{features.GenericWorkload, features.CompositePodGroup}, gateDecision{}},
		{"a server without DRA", nil, nil, gateDecision{
			off:     []string{"DRADeviceTaintRules"},
			absent:  []string{"devicetaintrules.v1.resource.k8s.io"},
			missing: []string{"deviceclasses.v1.resource.k8s.io", "resourceclaims.v1.resource.k8s.io", "resourceslices.v1.resource.k8s.io"},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			served := map[string]bool{}
			for _, api := range tc.served {
				served[api] = true
			}
			enabled := map[featuregate.Feature]bool{}
			for _, feature := range tc.enabled {
				enabled[feature] = true
			}
			got := decideGates(
				func(api schema.GroupVersionResource) bool { return served[name(api)] },
				func(f featuregate.Feature) bool { return enabled[f] || utilfeature.DefaultFeatureGate.Enabled(f) },
				utilfeature.DefaultMutableFeatureGate.Dependencies())
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(gateDecision{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestCheckLeaderElection(t *testing.T) {
	ours := leaderElection{on: true, namespace: "gpubank-system", resource: "gpubank-scheduler"}
	for _, tc := range []struct {
		name    string
		l       leaderElection
		without bool
		refused bool
	}{
		{"on, a lease of its own", ours, false, false},
		{"off", leaderElection{}, false, true},
		{"off, and that is meant", leaderElection{}, true, false},
		{"the cluster's own lease", leaderElection{on: true, namespace: "kube-system", resource: "kube-scheduler"}, false, true},
	} {
		if err := checkLeaderElection(tc.l, tc.without); (err != nil) != tc.refused {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}
