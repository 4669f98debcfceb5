// Package cluster runs the real parts that gpubank meets in production, as private processes of this machine: a
// PostgreSQL cluster, etcd, kube-apiserver, kube-controller-manager, and gpubank's own commands. The tests, `make up`,
// `make demo` and `make bench` all stand on it.
//
// What it promises:
//
//   - A system's own PostgreSQL or Kubernetes is never touched: every part has its own directory, ports and sockets.
//   - Nothing survives the program that started it, however that program ends: each process is tied to the parent by
//     the kernel (see Process).
//   - Parts keep their ports and data over Stop, Kill and Start, so a test can kill one and look for what it left.
//
// Programs come from Binaries (the control plane) and pgprograms.Find; both say what to do when something is missing.
package cluster
