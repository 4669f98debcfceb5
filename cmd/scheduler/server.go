package main

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
)

// server is what discovery tells of an API server.
type server struct {
	version   *version.Info
	resources map[schema.GroupVersion]map[string]bool
}

func (s server) serves(api schema.GroupVersionResource) bool {
	return s.resources[api.GroupVersion()][api.Resource]
}

// discover asks for the group versions that a decision needs, and no others: an aggregated API that is broken is not our business.
func discover(client discovery.DiscoveryInterface) (server, error) {
	s := server{resources: map[schema.GroupVersion]map[string]bool{}}
	var err error
	if s.version, err = client.ServerVersion(); err != nil {
		return s, fmt.Errorf("ask the API server for its version: %w", err)
	}
	wanted := map[schema.GroupVersion]bool{}
	for _, api := range guardedAPIs {
		wanted[api.GroupVersion()] = true
	}
	for _, api := range requiredAPIs {
		wanted[api.GroupVersion()] = true
	}
	for groupVersion := range wanted {
		list, err := client.ServerResourcesForGroupVersion(groupVersion.String())
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return s, fmt.Errorf("ask the API server which resources of %s it has: %w", groupVersion, err)
		}
		s.resources[groupVersion] = namesOf(list)
	}
	return s, nil
}

func namesOf(list *metav1.APIResourceList) map[string]bool {
	names := make(map[string]bool, len(list.APIResources))
	for _, resource := range list.APIResources {
		names[resource.Name] = true
	}
	return names
}
