// Package placement says what a GPU node is worth to the pods that are likely to come, and so on which node a pod does the least
// harm. It is pure: it knows nothing of Kubernetes, clocks or I/O, so that the scheduler's plugin gpubestfit, the benchmark that
// replays a production cluster's trace and the tests run the same score.
//
// Mix learns what is submitted. Outlook combines it with what the cluster has free. Score is in score.go, under its formula; why it is as
// it is, what else was tried and the figures are in docs/designs/placement-score.md.
package placement
