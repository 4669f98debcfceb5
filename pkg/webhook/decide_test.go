package webhook

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
)

func TestDecideJob(t *testing.T) {
	for name, c := range map[string]struct {
		facts  func(*Facts)
		change func(*batchv1.Job)
		raw    bool // as it is, without the mutating step
		want   Code
		hold   ledger.PlaceHold // only MaxGPUs and GPUSeconds are compared
		says   string
	}{
		"the worked example": {want: Held, hold: ledger.PlaceHold{MaxGPUs: 4, GPUSeconds: 2400}},
		"suspended": {change: func(j *batchv1.Job) { j.Spec.Suspend = ptr.To(true) },
			want: Held, hold: ledger.PlaceHold{MaxGPUs: 4, GPUSeconds: 2400}},
		"from a CronJob": {facts: func(f *Facts) { f.User = "system:serviceaccount:kube-system:cronjob-controller" },
			change: func(j *batchv1.Job) {
				j.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "CronJob", Name: "nightly", Controller: ptr.To(true)}}
			}, want: Held, hold: ledger.PlaceHold{MaxGPUs: 4, GPUSeconds: 2400}},
		"parallel": {change: func(j *batchv1.Job) { j.Spec.Parallelism, j.Spec.Completions = ptr.To(int32(8)), ptr.To(int32(3)) },
			want: Held, hold: ledger.PlaceHold{MaxGPUs: 12, GPUSeconds: 7200}},
		"GPUs in a sidecar": {change: func(j *batchv1.Job) {
			sidecar := gpuSpec("1").Containers[0]
			sidecar.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
			j.Spec.Template.Spec.InitContainers = []corev1.Container{sidecar}
		}, want: Held, hold: ledger.PlaceHold{MaxGPUs: 5, GPUSeconds: 3000}},
		"not enrolled": {facts: func(f *Facts) { f.Enrolled = false }, want: NotEnrolled},
		"no GPUs":      {change: func(j *batchv1.Job) { j.Spec.Template.Spec = gpuSpec("0") }, want: NoGPUs},

		"unknown GPU": {facts: func(f *Facts) { f.Classes = nil }, want: "UnknownResource", says: "no GPUClass lists"},
		"resource claims": {change: func(j *batchv1.Job) { j.Spec.Template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}} },
			want: "ResourceClaims", says: "not metered"},
		"half a GPU":             {change: func(j *batchv1.Job) { j.Spec.Template.Spec = gpuSpec("500m") }, want: "BadQuantity", says: "whole number"},
		"no such account":        {facts: func(f *Facts) { f.Account = nil }, want: AccountMissing, says: "no such CreditAccount"},
		"account being deleted":  {facts: func(f *Facts) { f.Account.DeletionTimestamp = ptr.To(metav1.Now()) }, want: AccountMissing, says: "being deleted"},
		"account pays elsewhere": {facts: func(f *Facts) { f.Account.Spec.Namespaces = []string{"web"} }, want: AccountDisagree, says: "spec.namespaces"},
		"another account's label": {change: func(j *batchv1.Job) { j.Labels = map[string]string{v1alpha1.AccountLabel: "team-b"} },
			want: OtherAccount, says: "leave the label out"},
		"another account's label on the template": {change: func(j *batchv1.Job) { j.Spec.Template.Labels = map[string]string{v1alpha1.AccountLabel: "team-b"} },
			want: OtherAccount, says: "spec.template.metadata.labels"},
		"another scheduler": {change: func(j *batchv1.Job) { j.Spec.Template.Spec.SchedulerName = "volcano" }, want: OtherScheduler, says: "volcano"},
		"nodeName":          {change: func(j *batchv1.Job) { j.Spec.Template.Spec.NodeName = "n1" }, want: NodeNameSet, says: "bypass"},
		"no bound":          {change: func(j *batchv1.Job) { j.Spec.Template.Spec.ActiveDeadlineSeconds = nil }, want: BadTerms, says: v1alpha1.MaxRuntimeAnnotation},
		"bad duration": {change: func(j *batchv1.Job) { j.Annotations = map[string]string{v1alpha1.MaxRuntimeAnnotation: "-5m"} },
			want: BadTerms, says: "outside 1s to 8760h"},
		"parallelism zero": {change: func(j *batchv1.Job) { j.Spec.Parallelism = ptr.To(int32(0)) }, want: BadTerms, says: "suspend: true"},
		"never mutated":    {raw: true, want: NotMutated, says: "/spec/template/spec/schedulerName"},
	} {
		t.Run(name, func(t *testing.T) {
			facts, job := enrolled(), gpuJob()
			if c.facts != nil {
				c.facts(&facts)
			}
			if c.change != nil {
				c.change(job)
			}
			if !c.raw {
				job = patched(t, job, MutateJob(facts, job))
			}
			got := DecideJob(facts, job)
			if got.Code != c.want || !strings.Contains(got.Message, c.says) {
				t.Fatalf("DecideJob = %+v; want %s saying %q", got, c.want, c.says)
			}
			checkHold(t, got, c.hold)
		})
	}
}

func checkHold(t *testing.T, got Decision, want ledger.PlaceHold) {
	t.Helper()
	if want.GPUSeconds == 0 {
		if got.Hold != nil {
			t.Errorf("a hold would be placed: %+v", got.Hold)
		}
		if !got.Allowed && got.Message == "" {
			t.Error("a denial without a message")
		}
		return
	}
	if got.Hold == nil {
		t.Fatalf("no hold: %+v", got)
	}
	command := got.Hold.Command
	if got.Allowed || command.MaxGPUs != want.MaxGPUs || command.GPUSeconds != want.GPUSeconds ||
		command.Account != "team-a" || command.Class != "h100" || command.Key != "hold:"+command.UID {
		t.Errorf("hold %+v; want %d GPUs, %d GPU-seconds", command, want.MaxGPUs, want.GPUSeconds)
	}
}

func TestDecidePod(t *testing.T) {
	const jobController = "system:serviceaccount:kube-system:job-controller"
	own := ledger.PlaceHold{MaxGPUs: 2, GPUSeconds: 120}
	reservation := func(change ...func(*ledger.Reservation)) func(*Facts) {
		return func(f *Facts) {
			f.User = jobController
			f.JobReservation = heldFor(gpuJob(), 2, 120)
			for _, c := range change {
				c(f.JobReservation)
			}
		}
	}
	for name, c := range map[string]struct {
		facts  func(*Facts)
		change func(*corev1.Pod)
		raw    bool
		want   Code
		hold   ledger.PlaceHold
		says   string
	}{
		"bare":                         {want: Held, hold: own},
		"covered by its Job":           {facts: reservation(), change: ofJob, want: Covered},
		"covered, and without a bound": {facts: reservation(), change: func(p *corev1.Pod) { ofJob(p); p.Spec.ActiveDeadlineSeconds = nil }, want: Covered},
		"covered, made by a controller manager of one identity": {
			facts: func(f *Facts) { reservation()(f); f.User = "system:kube-controller-manager" }, change: ofJob, want: Covered},
		"a forged owner":                      {facts: func(f *Facts) { reservation()(f); f.User = "mallory" }, change: ofJob, want: Held, hold: own},
		"its Job has no hold":                 {facts: func(f *Facts) { f.User = jobController }, change: ofJob, want: Held, hold: own},
		"its Job's hold is closed":            {facts: reservation(func(r *ledger.Reservation) { r.State = ledger.Settled }), change: ofJob, want: Held, hold: own},
		"its Job's hold is another Job's":     {facts: reservation(func(r *ledger.Reservation) { r.UID = "other" }), change: ofJob, want: Held, hold: own},
		"its Job's hold is another account's": {facts: reservation(func(r *ledger.Reservation) { r.Account = "team-b" }), change: ofJob, want: Held, hold: own},
		"its Job's hold is elsewhere":         {facts: reservation(func(r *ledger.Reservation) { r.Workload.Namespace = "web" }), change: ofJob, want: Held, hold: own},
		"its Job's hold is of another class":  {facts: reservation(func(r *ledger.Reservation) { r.Class = "a100" }), change: ofJob, want: Held, hold: own},
		"its Job's hold is for fewer GPUs":    {facts: reservation(func(r *ledger.Reservation) { r.MaxGPUs = 1 }), change: ofJob, want: Held, hold: own},
		"of a ReplicaSet": {facts: reservation(), change: func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", UID: "job-uid", Controller: ptr.To(true)}}
		}, want: Held, hold: own},
		"nodeName":          {change: func(p *corev1.Pod) { p.Spec.NodeName = "n1" }, want: NodeNameSet, says: "spec.nodeName"},
		"nodeName, covered": {facts: reservation(), change: func(p *corev1.Pod) { ofJob(p); p.Spec.NodeName = "n1" }, want: NodeNameSet},
		"a mirror pod": {facts: func(f *Facts) { f.User = "system:node:n1" }, change: func(p *corev1.Pod) {
			p.Annotations, p.Spec.NodeName = map[string]string{corev1.MirrorPodAnnotationKey: "x"}, "n1"
		}, want: NodeNameSet},
		"another scheduler":       {change: func(p *corev1.Pod) { p.Spec.SchedulerName = "my-scheduler" }, want: OtherScheduler, says: "my-scheduler"},
		"another account's label": {change: func(p *corev1.Pod) { p.Labels = map[string]string{v1alpha1.AccountLabel: "team-b"} }, want: OtherAccount},
		"never mutated":           {raw: true, want: NotMutated, says: "/metadata/finalizers"},
		"never mutated, covered":  {raw: true, facts: reservation(), change: ofJob, want: NotMutated},
		"no bound":                {change: func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = nil }, want: BadTerms, says: "on the pod"},
		"no GPUs":                 {change: func(p *corev1.Pod) { p.Spec = gpuSpec("0"); p.Spec.NodeName = "n1" }, want: NoGPUs},
	} {
		t.Run(name, func(t *testing.T) {
			facts, pod := enrolled(), gpuPod()
			if c.facts != nil {
				c.facts(&facts)
			}
			if c.change != nil {
				c.change(pod)
			}
			if !c.raw {
				pod = patched(t, pod, MutatePod(facts, pod))
			}
			got := DecidePod(facts, pod)
			if got.Code != c.want || !strings.Contains(got.Message, c.says) {
				t.Fatalf("DecidePod = %+v; want %s saying %q", got, c.want, c.says)
			}
			checkHold(t, got, c.hold)
		})
	}
}

func TestDecideJobUpdate(t *testing.T) {
	two := func(j *batchv1.Job) { j.Spec.Parallelism, j.Spec.Completions = ptr.To(int32(2)), ptr.To(int32(4)) }
	closed := heldFor(gpuJob(), 8, 9600)
	closed.State = ledger.Settled
	for name, c := range map[string]struct {
		held   *ledger.Reservation
		change func(*batchv1.Job)
		want   Code
		asks   bool // the ledger has to be asked
	}{
		"unsuspended":                      {change: func(j *batchv1.Job) { j.Spec.Suspend = ptr.To(false) }, want: NotRaised},
		"parallelism lowered":              {change: func(j *batchv1.Job) { j.Spec.Parallelism = ptr.To(int32(1)) }, want: NotRaised},
		"parallelism to zero":              {change: func(j *batchv1.Job) { j.Spec.Parallelism = ptr.To(int32(0)) }, want: NotRaised},
		"parallelism raised":               {held: heldFor(gpuJob(), 8, 9600), change: func(j *batchv1.Job) { j.Spec.Parallelism = ptr.To(int32(3)) }, want: CostRaised, asks: true},
		"raised, but held before":          {held: heldFor(gpuJob(), 12, 9600), change: func(j *batchv1.Job) { j.Spec.Parallelism = ptr.To(int32(3)) }, want: NotRaised, asks: true},
		"more completions":                 {held: heldFor(gpuJob(), 8, 9600), change: func(j *batchv1.Job) { j.Spec.Completions = ptr.To(int32(5)) }, want: CostRaised, asks: true},
		"more GPUs while suspended":        {held: heldFor(gpuJob(), 8, 9600), change: func(j *batchv1.Job) { j.Spec.Template.Spec.Containers[0] = gpuSpec("5").Containers[0] }, want: CostRaised, asks: true},
		"no hold: its pods need their own": {change: func(j *batchv1.Job) { j.Spec.Parallelism = ptr.To(int32(3)) }, want: NotRaised, asks: true},
		"closed: its pods need their own":  {held: closed, change: func(j *batchv1.Job) { j.Spec.Parallelism = ptr.To(int32(3)) }, want: NotRaised, asks: true},
		"bound removed":                    {held: heldFor(gpuJob(), 8, 9600), change: func(j *batchv1.Job) { j.Spec.Template.Spec.ActiveDeadlineSeconds = nil }, want: BadTerms, asks: true},
		"account label":                    {change: func(j *batchv1.Job) { j.Labels[v1alpha1.AccountLabel] = "team-b" }, want: OtherAccount},
		"account label removed":            {change: func(j *batchv1.Job) { delete(j.Labels, v1alpha1.AccountLabel) }, want: OtherAccount},
		"account label of the pods":        {change: func(j *batchv1.Job) { j.Spec.Template.Labels[v1alpha1.AccountLabel] = "team-b" }, want: OtherAccount},
		"scheduler":                        {change: func(j *batchv1.Job) { j.Spec.Template.Spec.SchedulerName = corev1.DefaultSchedulerName }, want: OtherScheduler},
		"GPUs to an unlisted kind": {held: heldFor(gpuJob(), 8, 9600), change: func(j *batchv1.Job) {
			j.Spec.Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"amd.com/gpu": resource.MustParse("1")}
		}, want: CostRaised, asks: true},
	} {
		t.Run(name, func(t *testing.T) {
			facts := enrolled()
			before := gpuJob(two)
			before = patched(t, before, MutateJob(facts, before))
			after := before.DeepCopy()
			c.change(after)
			facts.JobReservation = c.held
			if got := DecideJobUpdate(facts, before, after); got.Code != c.want || got.Allowed != (c.want == NotRaised) {
				t.Errorf("DecideJobUpdate = %+v; want %s", got, c.want)
			}
			if c.want == NotRaised && NotCostlier(facts, before, after) == c.asks {
				t.Errorf("asks the ledger: %v, want %v", !c.asks, c.asks)
			}
		})
	}
}

func TestDecideAccountDeletion(t *testing.T) {
	for name, c := range map[string]struct {
		row      ledger.Account
		unknown  bool
		children []string
		want     Code
		says     string
	}{
		"unused":                   {want: Unused},
		"not in the ledger":        {unknown: true, want: Unused},
		"open reservations":        {row: ledger.Account{Balance: 10 * ledger.Credit, Reserved: 5 * ledger.Credit}, want: AccountUsed, says: "5 credits reserved"},
		"a balance":                {row: ledger.Account{Balance: 10 * ledger.Credit}, want: AccountUsed, says: "balance 10"},
		"spent to zero":            {row: ledger.Account{Charged: 10_000 * ledger.Credit}, want: AccountUsed, says: "charged 10,000"},
		"children":                 {children: []string{"team-a", "team-b"}, want: AccountUsed, says: "parent of team-a, team-b"},
		"children only in the API": {unknown: true, children: []string{"team-a"}, want: AccountUsed, says: "parent of team-a"},
	} {
		got := DecideAccountDeletion("lab", c.row, !c.unknown, c.children)
		if got.Code != c.want || !strings.Contains(got.Message, c.says) {
			t.Errorf("%s: %+v; want %s saying %q", name, got, c.want, c.says)
		}
	}
}
