// Package parts runs gpubank's own commands as processes beside a cluster.ControlPlane and a cluster.Postgres: the same
// programs, flags, roles and webhook configurations as the manifests install, each under its own service account and
// its own role in PostgreSQL, so that every test on it also shows that the part's rights suffice.
//
// What differs from an installed gpubank: the API server calls the webhook, and agents call the intake, on ports of
// 127.0.0.1 with certificates of the control plane's authority, as with a certificate manager; and nodesim plays the
// nodes, with one node agent for each.
package parts
