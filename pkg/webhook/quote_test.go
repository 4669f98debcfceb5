package webhook

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
)

// quoterFunc answers quotes.
type quoterFunc func(ledger.PlaceHold) (ledger.Verdict, error)

func (f quoterFunc) Quote(_ context.Context, cmd ledger.PlaceHold) (ledger.Verdict, error) {
	return f(cmd)
}

func (f quoterFunc) Account(_ context.Context, name string) (ledger.Account, bool, error) {
	return ledger.Account{Name: name}, true, nil
}

// placing is a ledger that knows the account to hold at placement.
type placing struct{ quoterFunc }

func (placing) Account(_ context.Context, name string) (ledger.Account, bool, error) {
	return ledger.Account{Name: name, Policy: ledger.Policy{HoldAt: ledger.HoldAtPlacement}}, true, nil
}

// A workload as its author wrote it is quoted as it would be admitted: changed by the mutating step, then decided.
func TestQuoteWorkload(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	facts := enrolled()
	facts.Account.Spec.Policy.DefaultMaxRuntime = &metav1.Duration{Duration: time.Hour}
	class := facts.Classes[0].DeepCopy()
	class.Spec.CreditsPerGPUSecond = "2"
	cluster := fake.NewClientBuilder().WithScheme(scheme).WithObjects(facts.Account, class,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ml", Labels: map[string]string{v1alpha1.AccountLabel: "team-a"}}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "free"}},
	).Build()
	grants := func(cmd ledger.PlaceHold) (ledger.Verdict, error) {
		return ledger.Verdict{Reservation: &ledger.Reservation{Amount: 2 * ledger.Credit * ledger.Microcredits(cmd.GPUSeconds)}}, nil
	}
	refuses := func(code ledger.RefusalCode) quoterFunc {
		return func(ledger.PlaceHold) (ledger.Verdict, error) {
			return ledger.Verdict{Refusal: &ledger.Refusal{Code: code, Account: "lab", Needed: 4800 * ledger.Credit, Available: 400 * ledger.Credit, Message: "says no"}}, nil
		}
	}
	unbounded := gpuJob(func(j *batchv1.Job) { j.Spec.Template.Spec.ActiveDeadlineSeconds = nil })
	for name, c := range map[string]struct {
		namespace string
		object    client.Object
		ledger    quoterFunc
		code      Code
		cost      ledger.Microcredits
		says      string
	}{
		"a Job":             {"ml", gpuJob(), grants, Held, 4800 * ledger.Credit, ""},
		"a pod":             {"ml", gpuPod(), grants, Held, 240 * ledger.Credit, ""},
		"a Job's own pod":   {"ml", gpuPod(ofJob), grants, Held, 240 * ledger.Credit, ""},
		"the default time":  {"ml", unbounded, grants, Held, 28_800 * ledger.Credit, ""},
		"refused":           {"ml", gpuJob(), refuses(ledger.InsufficientCredits), Code(ledger.InsufficientCredits), 4800 * ledger.Credit, "account lab has 400 available"},
		"frozen":            {"ml", gpuJob(), refuses(ledger.AccountFrozen), Code(ledger.AccountFrozen), 4800 * ledger.Credit, "says no"},
		"not enrolled":      {"free", gpuJob(), nil, NotEnrolled, 0, ""},
		"no such place":     {"none", gpuJob(), nil, NotEnrolled, 0, ""},
		"no GPUs":           {"ml", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: gpuSpec("0")}, nil, NoGPUs, 0, ""},
		"another scheduler": {"ml", gpuPod(func(p *corev1.Pod) { p.Spec.SchedulerName = "volcano" }), nil, OtherScheduler, 0, "volcano"},
	} {
		quote, err := QuoteWorkload(t.Context(), cluster, c.ledger, c.namespace, c.object)
		if err != nil || quote.Decision.Code != c.code || quote.Cost != c.cost || !strings.Contains(quote.Decision.Message, c.says) || quote.Decision.Allowed != (c.says == "") {
			t.Errorf("%s: %+v, %v", name, quote, err)
		}
		if name == "the default time" && (len(quote.Warnings) != 1 || quote.Hold.Command.GPUSeconds != 14_400) {
			t.Errorf("%s: %+v, %+v", name, quote.Warnings, quote.Hold)
		}
	}
	// Where pods bring their holds, it is one pod's that is quoted, and a lack of credits makes it wait.
	two := func(j *batchv1.Job) { j.Spec.Parallelism, j.Spec.Completions = ptr.To[int32](2), ptr.To[int32](2) }
	quote, err := QuoteWorkload(t.Context(), cluster, placing{grants}, "ml", gpuJob(two))
	if err != nil || !quote.Decision.Allowed || quote.Decision.Code != AtPlacement || quote.Cost != 4800*ledger.Credit || quote.Hold.Subject != "each pod of this Job" {
		t.Errorf("at placement: %+v, %v", quote, err)
	}
	quote, err = QuoteWorkload(t.Context(), cluster, placing{refuses(ledger.InsufficientCredits)}, "ml", gpuJob(two))
	if err != nil || !quote.Decision.Allowed || quote.Refusal == nil || len(quote.Warnings) != 1 || !strings.Contains(quote.Warnings[0], "would wait") {
		t.Errorf("at placement, refused: %+v, %v", quote, err)
	}
	away := func(ledger.PlaceHold) (ledger.Verdict, error) { return ledger.Verdict{}, errors.New("away") }
	if _, err := QuoteWorkload(t.Context(), cluster, quoterFunc(away), "ml", gpuJob()); err == nil || !strings.Contains(err.Error(), "away") {
		t.Errorf("a ledger that is away: %v", err)
	}
}
