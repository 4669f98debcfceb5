package kueue

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueuev1beta2 "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/workload"
)

var start = time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)

// queued is a suspended Job of 4 pods at once, 2 GPUs each, for 100 s.
func queued() *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "train", UID: "job-uid", Labels: map[string]string{workload.KueueQueueLabel: "q"}},
		Spec: batchv1.JobSpec{
			Suspend: ptr.To(true), Parallelism: ptr.To(int32(4)), Completions: ptr.To(int32(8)), ActiveDeadlineSeconds: ptr.To(int64(100)),
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
				Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("2")}}}}}},
		},
	}
}

var gpuClasses = []v1alpha1.GPUClass{
	{ObjectMeta: metav1.ObjectMeta{Name: "a100"}, Spec: v1alpha1.GPUClassSpec{ResourceNames: []string{"nvidia.com/gpu"}, NodeSelector: map[string]string{"gpu": "a100"}}},
	{ObjectMeta: metav1.ObjectMeta{Name: "h100"}, Spec: v1alpha1.GPUClassSpec{ResourceNames: []string{"nvidia.com/gpu"}, NodeSelector: map[string]string{"gpu": "h100"}}},
}

func onClass(class string, count int64) []podSet {
	return []podSet{{count: count, nodeSelector: map[string]string{"gpu": class}}}
}

// withQuota is a Workload that has quota since the start, for all four pods on h100, and waits for its credits.
func withQuota(change ...func(*admission)) admission {
	a := admission{
		name: "job-train", uid: "wl-uid", reserved: true, reservedSince: start, podSets: onClass("h100", 4),
		checks: []check{{name: "credits", state: kueuev1beta2.CheckStatePending}},
	}
	for _, each := range change {
		each(&a)
	}
	return a
}

func isReady(a *admission)    { a.checks[0].state = kueuev1beta2.CheckStateReady }
func isEvicted(a *admission)  { a.evicted = true }
func isFinished(a *admission) { a.finished = true }
func hasNoQuota(a *admission) { a.reserved, a.podSets = false, nil }

func TestDecide(t *testing.T) {
	held := ledger.Reservation{UID: "job-uid", Account: "team", Class: "h100", Rate: 1, MaxGPUs: 8, GPUSeconds: 800, Amount: 800, State: ledger.Held}
	hold := func(change func(*ledger.Reservation)) *ledger.Reservation {
		r := held
		change(&r)
		return &r
	}
	running := func(f *facts) { f.job.Spec.Suspend = ptr.To(false) }
	for name, c := range map[string]struct {
		workloads []admission
		hold      *ledger.Reservation
		change    func(*facts)
		// want is what is done, in order: states before, pause, hold, states after; see describe.
		want string
		says string // part of the message of the states after
	}{
		"credits are set aside as admitted": {workloads: []admission{withQuota()}, want: "hold 8 GPUs 800 GPU-seconds h100 from 0"},
		"for as many pods as admitted": {workloads: []admission{withQuota(func(a *admission) { a.podSets[0].count = 3 })},
			want: "hold 6 GPUs 600 GPU-seconds h100 from 0"},
		"a Workload that claims more pods than its Job has": {workloads: []admission{withQuota(func(a *admission) { a.podSets[0].count = 400 })},
			want: "hold 8 GPUs 800 GPU-seconds h100 from 0"},
		"of the class that its flavor is": {workloads: []admission{withQuota(func(a *admission) { a.podSets = onClass("a100", 4) })},
			want: "hold 8 GPUs 800 GPU-seconds a100 from 0"},
		"for what is left to do": {workloads: []admission{withQuota()}, change: func(f *facts) {
			f.job.Status.Succeeded, f.job.Spec.ActiveDeadlineSeconds, f.job.Spec.Template.Spec.ActiveDeadlineSeconds = 5, nil, ptr.To(int64(10))
		}, want: "hold 6 GPUs 60 GPU-seconds h100 from 0"},
		"a class that nobody can tell": {workloads: []admission{withQuota(func(a *admission) { a.podSets[0].nodeSelector = nil })},
			want: "Pending", says: "several GPUClasses offer nvidia.com/gpu"},
		"a cost that nobody can tell": {workloads: []admission{withQuota()}, change: func(f *facts) { f.job.Spec.ActiveDeadlineSeconds = nil },
			want: "Pending", says: "activeDeadlineSeconds"},
		"no GPU": {workloads: []admission{withQuota()}, change: func(f *facts) { f.job.Spec.Template.Spec.Containers[0].Resources.Limits = nil },
			want: "Ready", says: "asks for no GPU"},
		"not enrolled":                        {workloads: []admission{withQuota()}, change: func(f *facts) { f.account, f.claimed = "", "" }, want: "Ready", says: "not enrolled"},
		"an account that does not want to":    {workloads: []admission{withQuota()}, change: func(f *facts) { f.account = "" }, want: "Pending", says: "Account team"},
		"held by its pods":                    {workloads: []admission{withQuota()}, change: func(f *facts) { f.holdAt = ledger.HoldAtPlacement }, want: "Ready", says: "Each pod"},
		"held at submission":                  {workloads: []admission{withQuota()}, hold: &held, change: atSubmission, want: "Ready", says: "0.0008 credits are set aside"},
		"to be held at submission, and isn't": {workloads: []admission{withQuota()}, change: atSubmission, want: "hold 8 GPUs 800 GPU-seconds h100 from 0"},
		"held at submission, partly used": {workloads: []admission{withQuota()}, change: atSubmission,
			hold: hold(func(r *ledger.Reservation) { r.State, r.Charged = ledger.Active, 300 }), want: "Ready"},

		"killed before it could say so": {workloads: []admission{withQuota()}, hold: &held, want: "Ready", says: "0.0008 credits"},
		"answered":                      {workloads: []admission{withQuota(isReady)}, hold: &held},
		"running, used up": {workloads: []admission{withQuota(isReady)}, change: running,
			hold: hold(func(r *ledger.Reservation) { r.State, r.Charged = ledger.Active, 800 })},
		"Ready and never held (A2)": {workloads: []admission{withQuota(isReady)}, want: "hold 8 GPUs 800 GPU-seconds h100 from 0"},

		"evicted, quota not taken yet":       {workloads: []admission{withQuota(isEvicted)}, hold: &held},
		"evicted before it ran (A4)":         {workloads: []admission{withQuota(hasNoQuota)}, hold: &held, want: "pause from 800"},
		"evicted, another check's Ready":     {workloads: []admission{withQuota(hasNoQuota, isReady)}, hold: &held, want: "Pending first, pause from 800"},
		"evicted, its last pods are running": {workloads: []admission{withQuota(hasNoQuota)}, hold: &held, change: func(f *facts) { f.inUse = true }},
		"evicted, not suspended yet":         {workloads: []admission{withQuota(hasNoQuota)}, hold: &held, change: running},
		"evicted, held at submission":        {workloads: []admission{withQuota(hasNoQuota)}, hold: &held, change: atSubmission},
		"its Workload was deleted":           {hold: &held, want: "pause from 800"},
		"given back already (L1)": {workloads: []admission{withQuota(hasNoQuota)},
			hold: hold(func(r *ledger.Reservation) { r.GPUSeconds, r.Amount = 0, 0 })},
		"admitted again": {workloads: []admission{withQuota()}, hold: hold(func(r *ledger.Reservation) { r.GPUSeconds, r.Amount = 0, 0 }),
			want: "hold 8 GPUs 800 GPU-seconds h100 from 0"},
		"admitted again after it ran": {workloads: []admission{withQuota()},
			hold: hold(func(r *ledger.Reservation) { r.State, r.GPUSeconds, r.Amount, r.Charged = ledger.Active, 300, 300, 300 }),
			want: "hold 8 GPUs 800 GPU-seconds h100 from 300"},
		"admitted again, before anything was given back": {workloads: []admission{withQuota()},
			hold: hold(func(r *ledger.Reservation) { r.State, r.Charged = ledger.Active, 300 }),
			want: "hold 8 GPUs 800 GPU-seconds h100 from 800"},
		"admitted again on another class, before anything was given back": {workloads: []admission{withQuota()},
			hold: hold(func(r *ledger.Reservation) { r.State, r.Charged, r.Class = ledger.Active, 300, "a100" }),
			want: "pause from 800, hold 8 GPUs 800 GPU-seconds h100 from 300"},

		"admitted again, its last pods are not known to have ended": {workloads: []admission{withQuota()}, change: func(f *facts) { f.inUse = true },
			hold: hold(func(r *ledger.Reservation) { r.State, r.Charged = ledger.Active, 300 }), want: "Pending", says: "last pods"},

		"finished (A1)": {workloads: []admission{withQuota(isFinished)}, hold: hold(func(r *ledger.Reservation) { r.State = ledger.Settled })},
		"over, its hold not settled yet": {workloads: []admission{withQuota()}, hold: &held, change: func(f *facts) {
			f.job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
		}},
		"a finished Workload without any hold (A1)": {workloads: []admission{withQuota(isFinished)}},
		"a Job that is not there":                   {workloads: []admission{withQuota()}, change: func(f *facts) { f.job = nil }, want: "Rejected", says: "does not exist"},
		"a queue without our check":                 {workloads: []admission{withQuota(func(a *admission) { a.checks = nil })}},

		"a larger slice of a running Job (A5)": {
			workloads: []admission{
				withQuota(isReady, func(a *admission) { a.podSets[0].count = 2 }),
				withQuota(func(a *admission) { a.name, a.uid, a.reservedSince = "slice-2", "wl-2", start.Add(time.Second) }),
			},
			hold:   hold(func(r *ledger.Reservation) { r.State, r.MaxGPUs, r.GPUSeconds, r.Amount = ledger.Active, 4, 400, 400 }),
			change: func(f *facts) { running(f); f.inUse = true }, want: "hold 8 GPUs 800 GPU-seconds h100 from 400"},
		"the slice before is finished (A5)": {
			workloads: []admission{withQuota(isReady, isFinished), withQuota(isReady, func(a *admission) { a.name, a.uid = "slice-2", "wl-2" })},
			hold:      hold(func(r *ledger.Reservation) { r.State = ledger.Active }), change: running},
		"a smaller slice": {workloads: []admission{withQuota(func(a *admission) { a.podSets[0].count = 2 })},
			hold: hold(func(r *ledger.Reservation) { r.State, r.Charged = ledger.Active, 700 }), change: running, want: "Ready"},
	} {
		t.Run(name, func(t *testing.T) {
			f := facts{
				now: start.Add(time.Second), job: queued(), workloads: c.workloads, account: "team", claimed: "team", classes: gpuClasses,
				holdAt: ledger.HoldAtAdmission, reservation: c.hold,
			}
			if c.change != nil {
				c.change(&f)
			}
			p := decide(f)
			if got := describe(p); got != c.want {
				t.Errorf("does %q, want %q", got, c.want)
			}
			for _, a := range p.after {
				if !strings.Contains(a.message, c.says) {
					t.Errorf("says %q, which lacks %q", a.message, c.says)
				}
			}
		})
	}
}

func atSubmission(f *facts) { f.holdAt = ledger.HoldAtSubmission }

func TestConclude(t *testing.T) {
	f := facts{now: start.Add(time.Second), job: queued()}
	p := plan{waiting: []admission{withQuota()}, hold: &ledger.EnsureHold{Hold: ledger.PlaceHold{GPUSeconds: 800, Class: "h100"}}}
	refused := ledger.Verdict{Refusal: &ledger.Refusal{Code: ledger.InsufficientCredits, Message: "needs 800 credits, 100 available on account team"}}
	got := conclude(f, p, refused)
	if describe(got) != "Pending" || got.lookAgain != recheck || !strings.Contains(got.after[0].message, "needs 800 credits, 100 available on account team (800 GPU-seconds of class h100") {
		t.Errorf("refused: %q again in %s, %+v", describe(got), got.lookAgain, got.after)
	}
	granted := ledger.Verdict{Reservation: &ledger.Reservation{Account: "team", Class: "h100", Amount: 800 * ledger.Credit, State: ledger.Held}}
	if got := conclude(f, p, granted); describe(got) != "Ready" || !strings.Contains(got.after[0].message, "800 credits of account team") {
		t.Errorf("granted: %+v", got.after)
	}
}

func TestDecideOther(t *testing.T) {
	owned := func(kind string, controller bool) metav1.OwnerReference {
		return metav1.OwnerReference{Kind: kind, Name: "x", Controller: ptr.To(controller)}
	}
	for want, owners := range map[kueuev1beta2.CheckState][]metav1.OwnerReference{
		kueuev1beta2.CheckStatePending: nil,
		kueuev1beta2.CheckStateReady:   {owned("Pod", false), owned("JobSet", true)},
	} {
		if got := decideOther(withQuota(), owners); got.state != want {
			t.Errorf("owners %v: %s (%s), want %s", owners, got.state, got.message, want)
		}
	}
}
