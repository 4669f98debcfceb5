// Package workload reads Kubernetes workloads the way the ledger needs them: how many GPUs of which class a pod asks
// for, the most a Job may use, which workload's hold covers a pod, and when a pod started and ended. Every function is pure, so webhook,
// scheduler and controller cannot come to different answers.
package workload
