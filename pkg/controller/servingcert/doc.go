// Package servingcert makes, shares and rotates the meter intake's serving certificate, for clusters that have no
// certificate manager.
//
// All replicas share one Secret with a private authority and a certificate it signed; whichever replica comes first
// creates it, and the others' creation loses with a conflict and reads it. The authority's certificates, the current
// one and its predecessor, are published in a ConfigMap that node agents mount. Both are renewed when a third of
// their lifetime is left. An agent that has not yet received a renewed authority keeps its intervals and tries again.
package servingcert
