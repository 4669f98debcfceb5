// Package servingcert makes, shares and rotates serving certificates, the meter intake's and the webhook's, for clusters
// that have no certificate manager.
//
// All replicas share one Secret with a private authority and a certificate it signed; whichever replica comes first
// creates it, and the others' creation loses with a conflict and reads it. The authority's certificates, the current
// one and its predecessor, are published where the clients look for them: for the intake in a ConfigMap that node agents mount, for
// the webhook in its configurations' caBundle. Both are renewed when a third of their lifetime is left. A client that has not yet
// received a renewed authority still trusts the other replicas, and tries again.
package servingcert
