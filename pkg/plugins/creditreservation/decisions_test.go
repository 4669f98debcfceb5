package creditreservation

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/workload"
)

func TestJudge(t *testing.T) {
	account := &v1alpha1.CreditAccount{
		ObjectMeta: metav1.ObjectMeta{Name: "team-a"},
		Spec:       v1alpha1.CreditAccountSpec{Namespaces: []string{"ml"}},
	}
	gpus := workload.Demand{Resource: "nvidia.com/gpu", Class: "h100", GPUs: 4}
	for _, tc := range []struct {
		name    string
		facts   facts
		skip    bool
		refusal string // a part of it
	}{
		{"no GPUs, not enrolled", facts{namespace: "web"}, true, ""},
		{"no GPUs, enrolled", facts{namespace: "ml", accountLabel: "team-a", account: account}, true, ""},
		{"GPUs, both sides agree", facts{namespace: "ml", accountLabel: "team-a", account: account, demand: gpus}, false, ""},
		{"GPUs, namespace not enrolled", facts{namespace: "web", demand: gpus}, false, "Credit: namespace web is not enrolled"},
		{"GPUs, no such account", facts{namespace: "ml", accountLabel: "team-x", demand: gpus}, false, "Credit: namespace ml is to be paid for by account team-x, which does not exist"},
		{"GPUs, the account does not list it", facts{namespace: "other", accountLabel: "team-a", account: account, demand: gpus}, false, "Credit: account team-a does not list namespace other"},
		{"unknown GPU, not enrolled", facts{namespace: "web", demandErr: errors.New("spec: x")}, false, "Credit: namespace web is not enrolled"},
		{"unknown GPU, enrolled", facts{namespace: "ml", accountLabel: "team-a", account: account, demandErr: errors.New("no GPUClass lists x")}, false, "Credit: no GPUClass lists x"},
	} {
		got := judge(tc.facts)
		if got.skip != tc.skip || (tc.refusal == "") != (got.refusal == "") || !strings.HasPrefix(got.refusal, tc.refusal) {
			t.Errorf("%s: %+v", tc.name, got)
		}
	}
}

type fixedView struct{ changed, allows bool }

func (v fixedView) ChangedSince(string, int64) bool             { return v.changed }
func (v fixedView) Affordable(string, ledger.Microcredits) bool { return v.allows }
func (v fixedView) MayRunMore(string) bool                      { return v.allows }

func TestWaitIsOver(t *testing.T) {
	start := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	passed := func() judgement { return judgement{} }
	refused := func() judgement { return judgement{refusal: "Credit: no"} }
	for _, tc := range []struct {
		name   string
		wait   wait
		after  time.Duration
		view   fixedView
		up     bool
		judged func() judgement
		want   bool
	}{
		{"ledger away", wait{reason: forLedger}, time.Hour, fixedView{true, true}, false, passed, false},
		{"ledger back", wait{reason: forLedger}, 0, fixedView{}, true, passed, true},
		{"nothing changed", wait{reason: forCredits}, time.Minute, fixedView{false, true}, true, passed, false},
		{"changed, still too few", wait{reason: forCredits}, time.Minute, fixedView{true, false}, true, passed, false},
		{"changed, enough", wait{reason: forCredits}, 0, fixedView{true, true}, true, passed, true},
		{"changed, enough, but refused just now for the third time", wait{reason: forCredits, notBefore: start.Add(2 * time.Second)}, time.Second, fixedView{true, true}, true, passed, false},
		{"nobody said anything for long", wait{reason: forCredits}, 10 * time.Minute, fixedView{}, true, passed, true},
		{"changed, still as many jobs run", wait{reason: forQuota}, time.Minute, fixedView{true, false}, true, passed, false},
		{"a job has ended", wait{reason: forQuota}, 0, fixedView{true, true}, true, passed, true},
		{"a job has ended, by an older view", wait{reason: forQuota}, time.Minute, fixedView{false, true}, true, passed, false},
		{"other refusal, changed", wait{reason: forChange}, 0, fixedView{true, false}, true, passed, true},
		{"other refusal, unchanged", wait{reason: forChange}, 0, fixedView{false, true}, true, passed, false},
		{"not enrolled", wait{reason: forEnrolment}, time.Hour, fixedView{true, true}, true, refused, false},
		{"enrolled since", wait{reason: forEnrolment}, 0, fixedView{}, true, passed, true},
	} {
		tc.wait.retryAt = start.Add(5 * time.Minute)
		if got := tc.wait.over(start.Add(tc.after), tc.view, tc.up, tc.judged); got != tc.want {
			t.Errorf("%s: over is %v", tc.name, got)
		}
	}
}

func TestPauseGrowsAndEnds(t *testing.T) {
	for refusals, want := range map[int]time.Duration{1: 0, 2: time.Second, 3: 2 * time.Second, 6: 16 * time.Second, 7: 30 * time.Second, 1000: 30 * time.Second} {
		if got := pause(refusals); got != want {
			t.Errorf("pause(%d) = %v, want %v", refusals, got, want)
		}
	}
}

func TestExplainBeginsWithTheReason(t *testing.T) {
	for want, a := range map[string]answer{
		"Credit: needs 2,400 credits, 340 available on account team-a": {verdict: ledger.Verdict{Refusal: &ledger.Refusal{
			Code: ledger.InsufficientCredits, Message: "needs 2,400 credits, 340 available on account team-a"}}},
		"Credit: needs 2,400 credits, 400 left of the 5,000 that account lab may spend in a month": {verdict: ledger.Verdict{Refusal: &ledger.Refusal{
			Code: ledger.SpendingLimited, Message: "needs 2,400 credits, 400 left of the 5,000 that account lab may spend in a month"}}},
		"Credit: account lab is frozen": {verdict: ledger.Verdict{Refusal: &ledger.Refusal{Code: ledger.AccountFrozen, Message: "account lab is frozen"}}},
		"Quota: account lab runs 3 of at most 3 jobs at once; it waits until one of them has ended": {verdict: ledger.Verdict{Refusal: &ledger.Refusal{
			Code: ledger.RunningLimited, Message: "account lab runs 3 of at most 3 jobs at once; it waits until one of them has ended"}}},
		"Credit: nothing bounds it": {refusal: "nothing bounds it"},
		"Ledger: no answer (it did not answer in time); nothing is bound until the ledger has committed it, and this pod is tried again by itself": {
			err: context.DeadlineExceeded},
	} {
		if got := a.explain(); got != want {
			t.Errorf("\n got %s\nwant %s", got, want)
		}
	}
}

func TestAfterFailedBind(t *testing.T) {
	pod := func(uid, node string) *corev1.Pod {
		p := &corev1.Pod{Spec: corev1.PodSpec{NodeName: node}}
		p.UID = "pod-1"
		if uid != "" {
			p.UID = "other"
		}
		return p
	}
	for _, tc := range []struct {
		name string
		live *corev1.Pod
		err  error
		want undo
	}{
		{"not bound", pod("", ""), nil, release},
		{"bound after all", pod("", "n1"), nil, confirm},
		{"another pod of that name", pod("other", ""), nil, leave},
		{"gone", nil, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "p"), leave},
		{"API server away", nil, errors.New("connection refused"), leave},
	} {
		if got := afterFailedBind("pod-1", tc.live, tc.err); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}
