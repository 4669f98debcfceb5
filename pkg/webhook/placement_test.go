package webhook

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
)

func atPlacement() Facts {
	facts := enrolled()
	facts.Account.Spec.Policy.HoldAt = v1alpha1.HoldAtPlacement
	return facts
}

func outlasting(action v1alpha1.OverrunAction) Facts {
	facts := enrolled()
	facts.Account.Spec.Policy.Overrun.Action = action
	return facts
}

// Where a workload may outlast its hold, what prices it must not stop it; what its user asked for stays.
func TestNoDeadlineWhereAWorkloadMayOutlastItsHold(t *testing.T) {
	byJob := func(j *batchv1.Job) {
		j.Spec.Template.Spec.ActiveDeadlineSeconds = nil
		j.Annotations = map[string]string{v1alpha1.MaxRuntimeAnnotation: "10m"}
	}
	for _, action := range []v1alpha1.OverrunAction{v1alpha1.OverrunRenew, v1alpha1.OverrunOverdraft} {
		facts := outlasting(action)
		job := patched(t, gpuJob(byJob), MutateJob(facts, gpuJob(byJob)))
		template := job.Spec.Template
		if template.Spec.ActiveDeadlineSeconds != nil || template.Annotations[v1alpha1.MaxRuntimeAnnotation] != "600" {
			t.Errorf("%s: the template is %+v", action, template)
		}
		decision := DecideJob(facts, job)
		checkHold(t, decision, ledger.PlaceHold{MaxGPUs: 4, GPUSeconds: 2400})

		pod := patched(t, gpuPod(), MutatePod(facts, gpuPod()))
		if *pod.Spec.ActiveDeadlineSeconds != 60 {
			t.Errorf("%s: its user's own deadline is gone: %+v", action, pod.Spec)
		}
		facts.Account.Spec.Policy.DefaultMaxRuntime = &metav1.Duration{Duration: time.Hour}
		unbounded := gpuPod(func(p *corev1.Pod) {
			p.Spec.ActiveDeadlineSeconds, p.Annotations = nil, map[string]string{"other": "x"}
		})
		mutation := MutatePod(facts, unbounded)
		pod = patched(t, unbounded, mutation)
		if pod.Spec.ActiveDeadlineSeconds != nil || pod.Annotations[v1alpha1.MaxRuntimeAnnotation] != "3600" || pod.Annotations["other"] != "x" {
			t.Errorf("%s: the pod is %+v", action, pod)
		}
		if len(mutation.Warnings) != 1 || strings.Contains(mutation.Warnings[0], "stopped") {
			t.Errorf("%s: %v", action, mutation.Warnings)
		}
		if again := MutatePod(facts, pod); len(again.Patch) != 0 {
			t.Errorf("%s: mutated again: %v", action, again.Patch)
		}
	}
	stopped := patched(t, gpuJob(byJob), MutateJob(outlasting(v1alpha1.OverrunStop), gpuJob(byJob)))
	if deadline := stopped.Spec.Template.Spec.ActiveDeadlineSeconds; deadline == nil || *deadline != 600 {
		t.Errorf("Stop: the deadline is %v", deadline)
	}
}

func TestEachPodsHold(t *testing.T) {
	facts := atPlacement()
	for name, c := range map[string]struct {
		change func(*batchv1.Job)
		facts  func(*Facts)
		want   Code
		hold   ledger.PlaceHold
		says   string
	}{
		"one pod of many": {change: func(j *batchv1.Job) { j.Spec.Parallelism, j.Spec.Completions = ptr.To(int32(8)), ptr.To(int32(30)) },
			want: AtPlacement, hold: ledger.PlaceHold{MaxGPUs: 4, GPUSeconds: 2400}},
		"bounded by its Job alone": {change: func(j *batchv1.Job) {
			j.Spec.Template.Spec.ActiveDeadlineSeconds, j.Spec.ActiveDeadlineSeconds = nil, ptr.To(int64(900))
		}, want: AtPlacement, hold: ledger.PlaceHold{MaxGPUs: 4, GPUSeconds: 3600}},
		"bounded by nothing": {change: func(j *batchv1.Job) { j.Spec.Template.Spec.ActiveDeadlineSeconds = nil }, want: BadTerms, says: "nothing bounds"},
		"not seen by the mutating step": {change: func(j *batchv1.Job) {
			j.Spec.Template.Spec.ActiveDeadlineSeconds, j.Spec.ActiveDeadlineSeconds = nil, ptr.To(int64(900))
		}, facts: func(f *Facts) { f.Account.Spec.Policy.HoldAt = v1alpha1.HoldAtSubmission }, want: BadTerms, says: "spec.template.spec.activeDeadlineSeconds"},
	} {
		t.Run(name, func(t *testing.T) {
			facts := atPlacement()
			if c.facts != nil {
				c.facts(&facts)
			}
			job := gpuJob(c.change)
			job = patched(t, job, MutateJob(facts, job))
			got := DecideJob(facts, job)
			if got.Hold != nil {
				got = EachPodsHold(facts, job, got)
			}
			if got.Code != c.want || !strings.Contains(got.Message, c.says) {
				t.Fatalf("%+v; want %s saying %q", got, c.want, c.says)
			}
			checkHold(t, got, c.hold)
		})
	}
	pod := patched(t, gpuPod(ofJob), MutatePod(facts, gpuPod(ofJob)))
	got := EachPodsHold(facts, pod, DecidePod(facts, pod))
	checkHold(t, got, ledger.PlaceHold{MaxGPUs: 2, GPUSeconds: 120})
	if got.Code != AtPlacement || got.Hold.Command.UID != string(pod.UID) {
		t.Errorf("a pod of a Job without a hold: %+v", got)
	}
}

func TestDecideLater(t *testing.T) {
	job := patched(t, gpuJob(), MutateJob(atPlacement(), gpuJob()))
	hold := EachPodsHold(atPlacement(), job, DecideJob(atPlacement(), job)).Hold
	refused := func(code ledger.RefusalCode) ledger.Verdict {
		return ledger.Verdict{Refusal: &ledger.Refusal{Code: code, Account: "lab", Needed: 2400 * ledger.Credit, Available: 400 * ledger.Credit, Message: "no"}}
	}
	month := func(credits ledger.Microcredits) tightest {
		return tightest{account: "lab", spending: ledger.SpendingLimit{Amount: credits * ledger.Credit, Period: ledger.PeriodMonth}}
	}
	for name, c := range map[string]struct {
		verdict ledger.Verdict
		limit   tightest
		dryRun  bool
		want    Code
		warns   string
	}{
		"fits":                        {verdict: ledger.Verdict{}, want: AtPlacement},
		"fits, dry run":               {verdict: ledger.Verdict{Reservation: &ledger.Reservation{Amount: 2400 * ledger.Credit}}, dryRun: true, want: AtPlacement, warns: "nothing now; each pod of this Job needs 2,400 credits"},
		"too few credits":             {verdict: refused(ledger.InsufficientCredits), want: AtPlacement, warns: "would wait"},
		"too few credits, dry run":    {verdict: refused(ledger.InsufficientCredits), dryRun: true, want: AtPlacement, warns: "account lab has 400 available"},
		"frozen":                      {verdict: refused(ledger.AccountFrozen), want: AtPlacement, warns: "would wait"},
		"spent for this month":        {verdict: refused(ledger.SpendingLimited), limit: month(2400), want: AtPlacement, warns: "would wait"},
		"beyond what any month gives": {verdict: refused(ledger.SpendingLimited), limit: month(2399), want: "SpendingLimited"},
		"beyond any month, and too few credits besides": {verdict: refused(ledger.InsufficientCredits), limit: month(2000), want: "SpendingLimited"},
		"no price":                   {verdict: refused(ledger.UnknownClass), want: "UnknownClass"},
		"beyond what can be counted": {verdict: refused(ledger.OutOfRange), want: "OutOfRange"},
	} {
		got, warnings := DecideLater(hold, c.verdict, c.limit, c.dryRun)
		if got.Code != c.want || got.Allowed != (c.want == AtPlacement) || !strings.Contains(strings.Join(warnings, ""), c.warns) || (c.warns == "") != (len(warnings) == 0) {
			t.Errorf("%s: %+v, warns %q", name, got, warnings)
		}
	}
}

// Pods of a PodGroup are paid for when all of them are placed, not one by one when they are made.
func TestPodsOfAGroupBringTheirHolds(t *testing.T) {
	for name, each := range map[string]struct {
		object any
		brings bool
	}{
		"bare":                         {gpuPod(), false},
		"of a Job":                     {gpuJob(), false},
		"of a PodGroup":                {gpuPod(func(p *corev1.Pod) { p.Labels = map[string]string{"scheduling.x-k8s.io/pod-group": "mpi"} }), true},
		"of Kubernetes' own PodGroup":  {gpuPod(func(p *corev1.Pod) { p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: ptr.To("mpi")} }), true},
		"of a PodGroup without a name": {gpuPod(func(p *corev1.Pod) { p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{} }), false},
	} {
		if got := bringsHold(each.object); got != each.brings {
			t.Errorf("a pod %s brings its hold: %v", name, got)
		}
	}
}
