package main

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/featuregate"
	"k8s.io/kubernetes/pkg/features"

	genericfeatures "k8s.io/apiserver/pkg/features"
)

// guardedAPIs are the APIs that kube-scheduler 1.37 watches only while a feature is on, by that feature. A server
// without one of them would be waited for forever. Everything else it watches has been in v1 for longer than the oldest
// server we support, 1.35.
var guardedAPIs = map[featuregate.Feature]schema.GroupVersionResource{
	// pkg/scheduler/scheduler.go: the resource slice tracker. On by default in 1.37, where the API became v1.
	features.DRADeviceTaintRules: {Group: "resource.k8s.io", Version: "v1", Resource: "devicetaintrules"},
	// pkg/scheduler/eventhandlers.go. Off by default.
	features.GenericWorkload:   {Group: "scheduling.k8s.io", Version: "v1beta1", Resource: "podgroups"},
	features.CompositePodGroup: {Group: "scheduling.k8s.io", Version: "v1alpha3", Resource: "compositepodgroups"},
	// client-go's lease candidate. Off by default.
	genericfeatures.CoordinatedLeaderElection: {Group: "coordination.k8s.io", Version: "v1beta1", Resource: "leasecandidates"},
}

// requiredAPIs are watched by features that can no longer be switched off.
var requiredAPIs = []schema.GroupVersionResource{
	{Group: "resource.k8s.io", Version: "v1", Resource: "resourceclaims"},
	{Group: "resource.k8s.io", Version: "v1", Resource: "resourceslices"},
	{Group: "resource.k8s.io", Version: "v1", Resource: "deviceclasses"},
}

// gateDecision says what to do about a server's APIs.
type gateDecision struct {
	// off are the features to switch off, sorted.
	off []string
	// absent are the APIs that those features need and the server lacks, sorted.
	absent []string
	// missing are the APIs that nothing can do without, sorted. If there are any, the scheduler cannot run.
	missing []string
}

// decideGates chooses the features to switch off: each that is enabled and needs an API that is not served, and every enabled feature that
// depends on one of those, because kube-scheduler refuses a feature whose dependency is off.
func decideGates(served func(schema.GroupVersionResource) bool, enabled func(featuregate.Feature) bool, dependencies map[featuregate.Feature][]featuregate.Feature) gateDecision {
	var d gateDecision
	off := map[featuregate.Feature]bool{}
	for feature, api := range guardedAPIs {
		if enabled(feature) && !served(api) {
			off[feature] = true
			d.absent = append(d.absent, name(api))
		}
	}
	for grown := true; grown; {
		grown = false
		for feature, needs := range dependencies {
			if !off[feature] && enabled(feature) && slices.ContainsFunc(needs, func(f featuregate.Feature) bool { return off[f] }) {
				off[feature], grown = true, true
			}
		}
	}
	for feature := range maps.Keys(off) {
		d.off = append(d.off, string(feature))
	}
	for _, api := range requiredAPIs {
		if !served(api) {
			d.missing = append(d.missing, name(api))
		}
	}
	slices.Sort(d.off)
	slices.Sort(d.absent)
	slices.Sort(d.missing)
	return d
}

func name(api schema.GroupVersionResource) string {
	return api.Resource + "." + api.Version + "." + api.Group
}
