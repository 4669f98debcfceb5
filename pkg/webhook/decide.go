package webhook

import (
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/workload"
)

// DecideJob decides about a Job's creation.
func DecideJob(facts Facts, job *batchv1.Job) Decision {
	template := &job.Spec.Template
	demand, final := demandOf(facts, &template.Spec, template.Labels)
	// Which class it is may be for Kueue to say, whose flavors select nodes. Its pods are completed and checked as they are made.
	byFlavor := final != nil && final.Code == Code(workload.AmbiguousClass) && facts.holdsAtAdmission() && workload.WaitsForKueue(job)
	if final != nil && !byFlavor {
		return *final
	}
	if d := checkAccount(facts, labelled{&job.ObjectMeta, "metadata"}, labelled{&template.ObjectMeta, "spec.template.metadata"}); d != nil {
		return *d
	}
	if d := checkPlacement(&template.Spec, "spec.template.spec"); d != nil {
		return *d
	}
	if byFlavor {
		return allow(AtAdmission)
	}
	terms, err := workload.JobTerms(job, demand, workload.DefaultMaxRuntime(facts.Account))
	if err != nil {
		return deny(BadTerms, "%v", err)
	}
	if d := checkMutated(MutateJob(facts, job)); d != nil {
		return *d
	}
	command, err := workload.JobHold(job, facts.AccountName, demand, workload.DefaultMaxRuntime(facts.Account))
	if err != nil {
		return deny(BadTerms, "%v", err)
	}
	deadline := job.Spec.ActiveDeadlineSeconds
	return Decision{Code: Held, Hold: &Hold{
		Command: command, Demand: demand, Terms: terms, Subject: "this Job",
		ByJobDeadline: deadline != nil && terms.GPUSeconds/terms.MaxGPUs == *deadline && terms.GPUSeconds%terms.MaxGPUs == 0,
	}}
}

// DecidePod decides about a pod's creation, whoever made it.
func DecidePod(facts Facts, pod *corev1.Pod) Decision {
	demand, final := demandOf(facts, &pod.Spec, pod.Labels)
	if final != nil {
		return *final
	}
	if d := checkAccount(facts, labelled{&pod.ObjectMeta, "metadata"}); d != nil {
		return *d
	}
	if d := checkPlacement(&pod.Spec, "spec"); d != nil {
		return *d
	}
	if covered(facts, pod, demand) {
		if d := checkMutated(MutatePod(facts, pod)); d != nil {
			return *d
		}
		return allow(Covered)
	}
	terms, err := workload.PodTerms(pod, demand, workload.DefaultMaxRuntime(facts.Account))
	if err != nil {
		return deny(BadTerms, "%v", err)
	}
	if d := checkMutated(MutatePod(facts, pod)); d != nil {
		return *d
	}
	command, err := workload.PodHold(pod, facts.AccountName, demand, workload.DefaultMaxRuntime(facts.Account))
	if err != nil {
		return deny(BadTerms, "%v", err)
	}
	return Decision{Code: Held, Hold: &Hold{Command: command, Demand: demand, Terms: terms, Subject: "this Pod"}}
}

// demandOf returns the demand, or the final decision about a workload that has none or whose demand cannot be told.
func demandOf(facts Facts, spec *corev1.PodSpec, labels map[string]string) (workload.Demand, *Decision) {
	final := func(d Decision) (workload.Demand, *Decision) { return workload.Demand{}, &d }
	if !facts.Enrolled {
		return final(allow(NotEnrolled))
	}
	demand, err := workload.DemandOf(spec, labels, facts.Classes)
	if err != nil {
		code := BadTerms
		if demandError, ok := err.(*workload.DemandError); ok {
			code = Code(demandError.Code)
		}
		return final(deny(code, "%v", err))
	}
	if demand.IsZero() {
		return final(allow(NoGPUs))
	}
	return demand, nil
}

type labelled struct {
	*metav1.ObjectMeta
	field string
}

// checkAccount refuses when nobody would pay, or somebody else.
func checkAccount(facts Facts, objects ...labelled) *Decision {
	refuse := func(d Decision) *Decision { return &d }
	for _, object := range objects {
		if claimed, set := object.Labels[v1alpha1.AccountLabel]; set && claimed != facts.AccountName {
			return refuse(deny(OtherAccount, "%s.labels[%s]: %q is not the account of namespace %s, which is %q; leave the label out, it is set for you",
				object.field, v1alpha1.AccountLabel, claimed, facts.Namespace, facts.AccountName))
		}
	}
	if facts.Account == nil {
		return refuse(deny(AccountMissing, "namespace %s is paid for by account %q (its label %s), but there is no such CreditAccount; ask the cluster's operator to create it or to correct the label",
			facts.Namespace, facts.AccountName, v1alpha1.AccountLabel))
	}
	if facts.Account.DeletionTimestamp != nil {
		return refuse(deny(AccountMissing, "account %s, which pays for namespace %s, is being deleted; ask the cluster's operator for another account",
			facts.AccountName, facts.Namespace))
	}
	if !facts.accountPays() {
		return refuse(deny(AccountDisagree, "account %s does not pay for namespace %s: its spec.namespaces does not list it; ask the account's owner to add it",
			facts.AccountName, facts.Namespace))
	}
	return nil
}

// checkPlacement refuses what would reach a node without an allocation in the ledger.
func checkPlacement(spec *corev1.PodSpec, field string) *Decision {
	refuse := func(d Decision) *Decision { return &d }
	if spec.NodeName != "" {
		return refuse(deny(NodeNameSet, "%s.nodeName: %q would bypass the scheduler, so the GPUs would not be accounted for; use nodeSelector or affinity instead", field, spec.NodeName))
	}
	switch spec.SchedulerName {
	case v1alpha1.SchedulerName, corev1.DefaultSchedulerName, "":
		return nil // the last two are the mutating step's to replace; checkMutated sees that it did
	}
	return refuse(deny(OtherScheduler, "%s.schedulerName: GPU workloads of this namespace are placed by %s, which accounts for them, not by %q; leave the field out",
		field, v1alpha1.SchedulerName, spec.SchedulerName))
}

// checkMutated refuses a workload that lacks what the mutating step sets: it did not run, or another webhook undid it.
func checkMutated(missing Mutation) *Decision {
	if len(missing.Patch) == 0 {
		return nil
	}
	fields := make([]string, len(missing.Patch))
	for i, operation := range missing.Patch {
		fields[i] = operation.Path
	}
	d := deny(NotMutated, "gpubank's mutating webhook did not set %s, or another webhook changed it again; try again, and tell the cluster's operator if it happens twice",
		strings.Join(fields, ", "))
	return &d
}

// covered reports whether the pod runs under its Job's hold. Only the job controller's word is taken for whose pod it is, and the hold
// must be open and be able to cover the pod; if the Job was created while this webhook was away there is none, and the pod needs its own.
func covered(facts Facts, pod *corev1.Pod, demand workload.Demand) bool {
	job, ok := workload.JobOwner(pod)
	r := facts.JobReservation
	return ok && facts.byJobController() && r != nil && r.Open() &&
		r.UID == string(job.UID) && r.Account == facts.AccountName && r.Workload.Namespace == facts.Namespace &&
		r.Class == demand.Class && demand.GPUs <= r.MaxGPUs
}

// DecideJobUpdate decides about a change of a Job's spec or labels. A Job without an open reservation may change: its new pods
// are not covered and need holds of their own.
func DecideJobUpdate(facts Facts, before, after *batchv1.Job) Decision {
	if d := checkLabelKept(&before.ObjectMeta, &after.ObjectMeta, "metadata"); d != nil {
		return *d
	}
	if d := checkLabelKept(&before.Spec.Template.ObjectMeta, &after.Spec.Template.ObjectMeta, "spec.template.metadata"); d != nil {
		return *d
	}
	if was, is := before.Spec.Template.Spec.SchedulerName, after.Spec.Template.Spec.SchedulerName; was != is && is != v1alpha1.SchedulerName {
		return deny(OtherScheduler, "spec.template.spec.schedulerName: cannot be changed to %q; GPU workloads are placed by %s", is, v1alpha1.SchedulerName)
	}
	held := facts.JobReservation
	if held == nil || !held.Open() || NotCostlier(facts, before, after) || admittedAnew(facts, after) {
		return allow(NotRaised)
	}
	demand, err := workload.DemandOf(&after.Spec.Template.Spec, after.Spec.Template.Labels, facts.Classes)
	if err != nil {
		return deny(CostRaised, "%v", err)
	}
	if demand.IsZero() || pausedByParallelism(after) {
		return allow(NotRaised)
	}
	terms, err := workload.JobTerms(after, demand, workload.DefaultMaxRuntime(facts.Account))
	if err != nil {
		return deny(BadTerms, "%v", err)
	}
	if demand.Class != held.Class {
		return deny(CostRaised, "the Job's credits are set aside for GPU class %s, not %s; create a new Job", held.Class, demand.Class)
	}
	if terms.MaxGPUs > held.MaxGPUs || terms.GPUSeconds > held.GPUSeconds {
		return deny(CostRaised, "credits are set aside for at most %d GPUs at once and %d GPU-seconds in all, and the change needs %d and %d; create a new Job for the rest",
			held.MaxGPUs, held.GPUSeconds, terms.MaxGPUs, terms.GPUSeconds)
	}
	return allow(NotRaised)
}

// admittedAnew reports whether Kueue will ask for the credits of the changed Job before it runs: it waits to be admitted, when Kueue
// also gives it back the size that it had before a partial admission; or it is elastic, and what is added waits.
func admittedAnew(facts Facts, job *batchv1.Job) bool {
	elastic := workload.InKueue(job) && job.Annotations[workload.KueueElasticAnnotation] == "true"
	return facts.holdsAtAdmission() && (workload.WaitsForKueue(job) || elastic)
}

// NotCostlier reports whether the change is within what the Job was before, so that the ledger need not be asked.
func NotCostlier(facts Facts, before, after *batchv1.Job) bool {
	if pausedByParallelism(after) {
		return true
	}
	was, wasTerms, err := costOf(facts, before)
	if err != nil {
		return false
	}
	is, isTerms, err := costOf(facts, after)
	return err == nil && (is.IsZero() || is.Class == was.Class && is.GPUs <= was.GPUs &&
		isTerms.MaxGPUs <= wasTerms.MaxGPUs && isTerms.GPUSeconds <= wasTerms.GPUSeconds)
}

func costOf(facts Facts, job *batchv1.Job) (workload.Demand, workload.Terms, error) {
	demand, err := workload.DemandOf(&job.Spec.Template.Spec, job.Spec.Template.Labels, facts.Classes)
	if err != nil || demand.IsZero() {
		return demand, workload.Terms{}, err
	}
	terms, err := workload.JobTerms(job, demand, workload.DefaultMaxRuntime(facts.Account))
	return demand, terms, err
}

// pausedByParallelism: parallelism 0 stops a running Job, which costs nothing more. (At creation it is refused, for want of a size.)
func pausedByParallelism(job *batchv1.Job) bool {
	return job.Spec.Parallelism != nil && *job.Spec.Parallelism == 0
}

func checkLabelKept(before, after *metav1.ObjectMeta, field string) *Decision {
	was, is := before.Labels[v1alpha1.AccountLabel], after.Labels[v1alpha1.AccountLabel]
	if was == is || was == "" {
		return nil
	}
	d := deny(OtherAccount, "%s.labels[%s]: cannot be changed from %q to %q; who pays was decided at creation", field, v1alpha1.AccountLabel, was, is)
	return &d
}

// DecideAccountDeletion decides about the deletion of a CreditAccount from its ledger row (found is false when there is
// none) and the names of the accounts below it.
func DecideAccountDeletion(name string, row ledger.Account, found bool, children []string) Decision {
	if len(children) > 0 {
		return deny(AccountUsed, "account %s is the parent of %s; give them another parent or delete them first", name, strings.Join(children, ", "))
	}
	if !found {
		return allow(Unused)
	}
	if row.Reserved != 0 {
		return deny(AccountUsed, "account %s has %s credits reserved for workloads that have not ended; wait for them or delete them first",
			name, ledger.DisplayCredits(row.Reserved))
	}
	if row.Balance != 0 || row.Charged != 0 {
		return deny(AccountUsed, "account %s has a history (balance %s, charged %s credits), which the ledger keeps; to stop its spending, remove its spec.namespaces",
			name, ledger.DisplayCredits(row.Balance), ledger.DisplayCredits(row.Charged))
	}
	return allow(Unused)
}
