package admission_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
)

// warned keeps what the API server warns of.
type warned struct {
	mu   sync.Mutex
	last []string
}

func (w *warned) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = append(w.last, text)
}

// take returns what was said since it was last asked.
func (w *warned) take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := strings.Join(w.last, "\n")
	w.last = nil
	return text
}

// testHoldAtPlacement: nothing is set aside at submission, what could never be placed is refused all the same, and who submits is
// told what would happen.
func testHoldAtPlacement(t *testing.T, s *suite) {
	ctx := t.Context()
	s.enrol(t, "placing", 1_000*ledger.Credit)
	account := &v1alpha1.CreditAccount{ObjectMeta: named("", "placing")}
	must(t, s.admin.Patch(ctx, account, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"policy":{"holdAt":"Placement"}}}`))))
	s.submit(t, ledger.SetAccount{Key: "account:placing:2", Account: "placing", Policy: ledger.Policy{
		HoldAt: ledger.HoldAtPlacement, Spending: ledger.SpendingLimit{Amount: 2_000 * ledger.Credit, Period: ledger.PeriodYear},
	}})
	warnings := &warned{}
	config := rest.CopyConfig(s.RESTConfig())
	config.WarningHandlerWithContext, config.WarningHandler = nil, warnings
	user, err := client.New(config, client.Options{Scheme: s.admin.Scheme()})
	must(t, err)
	suspended := func(j *batchv1.Job) { j.Spec.Suspend = ptr.To(true) }

	eventually(t, func(ctx context.Context) string { // until the webhook's mutating step has seen the policy
		bounded := newJob("placing", "by-its-job", "1", 1, suspended, func(j *batchv1.Job) {
			j.Spec.Template.Spec.ActiveDeadlineSeconds, j.Spec.ActiveDeadlineSeconds = nil, ptr.To(int64(90))
		})
		if err := user.Create(ctx, bounded); err != nil {
			return err.Error()
		}
		if got := ptr.Deref(bounded.Spec.Template.Spec.ActiveDeadlineSeconds, 0); got != 90 {
			t.Errorf("a Job's deadline bounds its pods by %d s", got)
		}
		return ""
	})
	warnings.take()
	for _, c := range []struct {
		name    string
		job     *batchv1.Job
		dryRun  bool
		refused string
		warns   string
	}{
		{name: "many pods, of which each could be placed", job: newJob("placing", "many", "4", 250, suspended, func(j *batchv1.Job) {
			j.Spec.Parallelism, j.Spec.Completions = ptr.To(int32(50)), ptr.To(int32(50))
		})},
		{name: "the same on a dry run", job: newJob("placing", "dry", "4", 250, suspended), dryRun: true,
			warns: "would set aside nothing now; each pod of this Job needs 1,000 credits"},
		{name: "beyond the balance, which may grow", job: newJob("placing", "rich", "4", 500, suspended),
			warns: "would wait if it were to be placed now: each pod of this Job needs up to 2,000 credits"},
		{name: "beyond what any year gives", job: newJob("placing", "never", "4", 501, suspended), refused: "needs up to 2,004 credits"},
		{name: "beyond what can be counted", job: newJob("placing", "enormous", "2147483647", 2147483647, suspended), refused: "the ledger refuses"},
		{name: "without a bound", job: newJob("placing", "unbounded", "1", 1, suspended, func(j *batchv1.Job) { j.Spec.Template.Spec.ActiveDeadlineSeconds = nil }),
			refused: v1alpha1.MaxRuntimeAnnotation},
	} {
		var options []client.CreateOption
		if c.dryRun {
			options = append(options, client.DryRunAll)
		}
		err := user.Create(ctx, c.job, options...)
		said := warnings.take()
		switch {
		case c.refused != "":
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s: %v; want a refusal saying %q", c.name, err, c.refused)
			}
		case err != nil:
			t.Errorf("%s: %v", c.name, err)
		case !strings.Contains(said, c.warns) || c.warns == "" && said != "":
			t.Errorf("%s: warned %q, want %q", c.name, said, c.warns)
		}
	}
	if got := s.reserved(t, "placing"); got != 0 {
		t.Errorf("%s reserved at submission", ledger.DisplayCredits(got))
	}
}

// testLimitsExplained: a limit for a period and a freeze are explained as too few credits are.
func testLimitsExplained(t *testing.T, s *suite) {
	s.enrol(t, "limited", 10_000*ledger.Credit)
	s.submit(t, ledger.SetAccount{Key: "account:limited:2", Account: "limited", Policy: ledger.Policy{
		Spending: ledger.SpendingLimit{Amount: 400 * ledger.Credit, Period: ledger.PeriodYear},
	}})
	refused := func(says ...string) {
		t.Helper()
		err := s.admin.Create(t.Context(), newJob("limited", "x", "4", 600))
		if !apierrors.IsForbidden(err) {
			t.Errorf("a Job beyond a limit: %v", err)
			return
		}
		for _, part := range says {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q does not say %q", err, part)
			}
		}
	}
	refused("this Job (4 GPUs × 600s of class h100) needs 2,400 credits, 400 left of the 400 that account limited may spend in a year",
		"the next one begins ", "at most 100s per pod")
	s.submit(t, ledger.FreezeAccount{Key: "freeze:limited", Account: "limited", Reason: "its books are being looked at"})
	refused("no credits can be set aside for this Job (4 GPUs × 600s of class h100)", "account limited is frozen: its books are being looked at")
}
