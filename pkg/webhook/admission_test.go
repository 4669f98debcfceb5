package webhook

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/workload"
)

func atAdmission() Facts {
	facts := enrolled()
	facts.Account.Spec.Policy.HoldAt = v1alpha1.HoldAtAdmission
	return facts
}

func inQueue(job *batchv1.Job) { job.Labels = map[string]string{workload.KueueQueueLabel: "team"} }
func suspend(job *batchv1.Job) { job.Spec.Suspend = ptr.To(true) }

// Only a Job that waits for Kueue is let in without a hold: nothing else would ask for its credits again before it runs.
func TestHeldAtAdmission(t *testing.T) {
	facts := atAdmission()
	for name, c := range map[string]struct {
		change []func(*batchv1.Job)
		moment ledger.HoldMoment
		want   Code
	}{
		"waits for Kueue":                    {[]func(*batchv1.Job){inQueue, suspend}, ledger.HoldAtAdmission, AtAdmission},
		"in no queue":                        {[]func(*batchv1.Job){suspend}, ledger.HoldAtAdmission, Held},
		"not suspended":                      {[]func(*batchv1.Job){inQueue}, ledger.HoldAtAdmission, Held},
		"neither":                            {nil, ledger.HoldAtAdmission, Held},
		"the ledger has not heard of it yet": {[]func(*batchv1.Job){inQueue, suspend}, ledger.HoldAtSubmission, Held},
		"the default":                        {[]func(*batchv1.Job){inQueue, suspend}, "", Held},
		"at placement":                       {[]func(*batchv1.Job){inQueue, suspend}, ledger.HoldAtPlacement, AtPlacement},
	} {
		t.Run(name, func(t *testing.T) {
			job := patched(t, gpuJob(c.change...), MutateJob(facts, gpuJob(c.change...)))
			got := Later(c.moment, facts, job, DecideJob(facts, job))
			if got.Code != c.want || (got.Hold.Later == "") != (c.want == Held) {
				t.Errorf("%+v; want %s", got, c.want)
			}
		})
	}
	pod := patched(t, gpuPod(), MutatePod(facts, gpuPod()))
	if got := Later(ledger.HoldAtAdmission, facts, pod, DecidePod(facts, pod)); got.Code != Held || got.Hold.Later != "" {
		t.Errorf("a pod is not held at once: %+v", got)
	}
}

func TestQuoteOfWhatIsHeldAtAdmission(t *testing.T) {
	facts := atAdmission()
	job := patched(t, gpuJob(inQueue, suspend), MutateJob(facts, gpuJob(inQueue, suspend)))
	hold := Later(ledger.HoldAtAdmission, facts, job, DecideJob(facts, job)).Hold
	refusal := &ledger.Refusal{Code: ledger.InsufficientCredits, Account: "lab", Needed: 2400 * ledger.Credit, Available: 400 * ledger.Credit}
	got, warnings := DecideLater(hold, ledger.Verdict{Refusal: refusal}, tightest{}, false)
	if got.Code != AtAdmission || !got.Allowed || !strings.Contains(strings.Join(warnings, ""), "would wait if it were to be admitted by Kueue now: this Job needs up to 2,400 credits") {
		t.Errorf("%+v, warns %q", got, warnings)
	}
}

// Several classes offer the resource, and the Job does not say which: Kueue's flavor will.
func TestClassChosenByKueue(t *testing.T) {
	ambiguous := func(job *batchv1.Job) { delete(job.Spec.Template.Labels, v1alpha1.ClassLabel) }
	facts := atAdmission()
	second := facts.Classes[0].DeepCopy()
	second.Name = "another"
	facts.Classes = append(facts.Classes, *second)
	if got := DecideJob(facts, gpuJob(ambiguous, inQueue, suspend)); got.Code != AtAdmission || !got.Allowed || got.Hold != nil {
		t.Errorf("waits for Kueue: %+v", got)
	}
	if got := DecideJob(facts, gpuJob(ambiguous, suspend)); got.Code != Code(workload.AmbiguousClass) {
		t.Errorf("waits for nobody: %+v", got)
	}
	byName := func(job *batchv1.Job) { job.Spec.Template.Spec.NodeName = "node-1" }
	if got := DecideJob(facts, gpuJob(ambiguous, inQueue, suspend, byName)); got.Code != NodeNameSet {
		t.Errorf("bypasses the scheduler: %+v", got)
	}
}

// Kueue shrinks a Job to what it admits, and gives it its size back when it is evicted.
func TestUpdateOfAJobThatWaitsForKueue(t *testing.T) {
	facts := atAdmission()
	facts.JobReservation = &ledger.Reservation{UID: "x", State: ledger.Held, Class: "h100", MaxGPUs: 4, GPUSeconds: 2400}
	size := func(pods int32) func(*batchv1.Job) {
		return func(job *batchv1.Job) { job.Spec.Parallelism, job.Spec.Completions = ptr.To(pods), ptr.To(pods) }
	}
	elastic := func(job *batchv1.Job) {
		metav1.SetMetaDataAnnotation(&job.ObjectMeta, workload.KueueElasticAnnotation, "true")
	}
	for name, c := range map[string]struct {
		after []func(*batchv1.Job)
		want  Code
	}{
		"evicted":                {[]func(*batchv1.Job){inQueue, suspend, size(4)}, NotRaised},
		"elastic":                {[]func(*batchv1.Job){inQueue, elastic, size(4)}, NotRaised},
		"elastic, in no queue":   {[]func(*batchv1.Job){elastic, size(4)}, CostRaised},
		"running":                {[]func(*batchv1.Job){inQueue, size(4)}, CostRaised},
		"suspended, in no queue": {[]func(*batchv1.Job){suspend, size(4)}, CostRaised},
	} {
		if got := DecideJobUpdate(facts, gpuJob(inQueue, size(1)), gpuJob(c.after...)); got.Code != c.want {
			t.Errorf("%s: %+v, want %s", name, got, c.want)
		}
	}
	facts.Account.Spec.Policy.HoldAt = v1alpha1.HoldAtSubmission
	if got := DecideJobUpdate(facts, gpuJob(inQueue, size(1)), gpuJob(inQueue, suspend, size(4))); got.Code != CostRaised {
		t.Errorf("held at submission: %+v", got)
	}
}
