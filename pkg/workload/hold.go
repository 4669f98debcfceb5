package workload

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// JobHold is the command that places a Job's hold. The Job's UID is the key, so that whoever places it, it is one.
// The error, if any, is a *TermsError.
func JobHold(job *batchv1.Job, account string, demand Demand, defaultMaxRuntime time.Duration) (ledger.PlaceHold, error) {
	terms, err := JobTerms(job, demand, defaultMaxRuntime)
	if err != nil {
		return ledger.PlaceHold{}, err
	}
	return placeHold(string(job.UID), ledger.WorkloadRef{Kind: "Job", Namespace: job.Namespace, Name: job.Name}, account, demand.Class, terms), nil
}

// PodHold is JobHold for a pod that needs a hold of its own.
func PodHold(pod *corev1.Pod, account string, demand Demand, defaultMaxRuntime time.Duration) (ledger.PlaceHold, error) {
	terms, err := PodTerms(pod, demand, defaultMaxRuntime)
	if err != nil {
		return ledger.PlaceHold{}, err
	}
	return placeHold(string(pod.UID), ledger.WorkloadRef{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name}, account, demand.Class, terms), nil
}

func placeHold(uid string, ref ledger.WorkloadRef, account, class string, terms Terms) ledger.PlaceHold {
	return ledger.PlaceHold{
		Key: "hold:" + uid, UID: uid, Account: account, Workload: ref, Class: class,
		MaxGPUs: terms.MaxGPUs, GPUSeconds: terms.GPUSeconds,
	}
}
