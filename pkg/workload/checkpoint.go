package workload

// CheckpointedAtAnnotation is where a pod, or whoever runs it, writes when its last durable checkpoint was made, in RFC
// 3339. A pod that is preempted is given back the time since then, where its account's policy says so.
const CheckpointedAtAnnotation = "gpubank.io/checkpointed-at"
