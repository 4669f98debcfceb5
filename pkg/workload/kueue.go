package workload

import (
	batchv1 "k8s.io/api/batch/v1"
)

// What Kueue reads on Jobs (sigs.k8s.io/kueue v0.17, pkg/controller/constants and pkg/workloadslicing).
const (
	// KueueQueueLabel names the LocalQueue that a Job waits in.
	KueueQueueLabel = "kueue.x-k8s.io/queue-name"
	// KueueElasticAnnotation, "true", lets a Job be resized while it runs; what is added waits for an admission of its own.
	KueueElasticAnnotation = "kueue.x-k8s.io/elastic-job"
	// KueueCompletionsAnnotation, "true", makes Kueue reduce a Job's completions together with its parallelism.
	KueueCompletionsAnnotation = "kueue.x-k8s.io/job-completions-equal-parallelism"
)

// WaitsForKueue reports whether a Job is Kueue's to start: it is in a queue, and suspended until it is admitted. Both are the
// author's own words; a Job that says so and is started by somebody else has no hold, and each of its pods needs its own.
func WaitsForKueue(job *batchv1.Job) bool {
	return InKueue(job) && job.Spec.Suspend != nil && *job.Spec.Suspend
}

// InKueue reports whether a Job is in one of Kueue's queues.
func InKueue(job *batchv1.Job) bool { return job.Labels[KueueQueueLabel] != "" }
