package creditreservation

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	configv1 "github.com/gpubank/gpubank/api/config/v1"
	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/plugins/catalog"
	"github.com/gpubank/gpubank/pkg/workload"
)

// scripted stands for a ledger that fails at chosen moments, which a real one cannot be made to do exactly. It writes
// down what it was asked.
type scripted struct {
	mu     sync.Mutex
	asked  []string
	answer func(command ledger.Command) (ledger.Verdict, error)
	own    map[string]ledger.ReservationState
}

func (s *scripted) Submit(_ context.Context, command ledger.Command) (ledger.Verdict, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	line := command.CommandKey()
	if c, ok := command.(ledger.Allocate); ok {
		line += fmt.Sprintf(" on %s under %s hold %v", c.Node, c.Reservation, c.Hold != nil)
	}
	if c, ok := command.(ledger.AllocateGang); ok {
		line = describeGang(c)
	}
	s.asked = append(s.asked, line)
	if s.answer == nil {
		return ledger.Verdict{}, nil
	}
	return s.answer(command)
}

func (s *scripted) Reservation(_ context.Context, uid string) (ledger.Reservation, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, "reservation "+uid)
	state, found := s.own[uid]
	return ledger.Reservation{UID: uid, State: state}, found, nil
}

func (s *scripted) AcquireLeadership(context.Context, string, string) (int64, error) { return 7, nil }
func (s *scripted) Ping(context.Context) error                                       { return nil }

func (s *scripted) expect(t *testing.T, want ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if diff := cmp.Diff(want, s.asked); diff != "" {
		t.Errorf("asked of the ledger (-want +got):\n%s", diff)
	}
}

func newTestPlugin(t *testing.T, l Ledger, live ...*corev1.Pod) *CreditReservation {
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	client := fake.NewClientset()
	for _, pod := range live {
		if err := client.Tracker().Add(pod); err != nil {
			t.Fatal(err)
		}
	}
	pl := &CreditReservation{
		ctx: ctx, client: client, catalog: catalog.New(), clock: clocktesting.NewFakeClock(time.Now()),
		ledger: l, leadership: newLeadership(l, "s", "test"),
		waits: waits{byUID: map[types.UID]*wait{}}, lanes: lanes{byUID: map[types.UID]*lane{}},
	}
	configv1.SetDefaultsCreditReservationArgs(&pl.args)
	return pl
}

func gpuPod(job string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "p", UID: "pod"}}
	pod.Spec.ActiveDeadlineSeconds = ptr.To[int64](600)
	if job != "" {
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "j", UID: types.UID(job), Controller: ptr.To(true)}}
	}
	return pod
}

func testFacts() facts {
	return facts{
		namespace: "ml", accountLabel: "team-a",
		account: &v1alpha1.CreditAccount{ObjectMeta: metav1.ObjectMeta{Name: "team-a"}},
		demand:  workload.Demand{Resource: "nvidia.com/gpu", Class: "h100", GPUs: 4},
	}
}

// place runs one attempt to its answer.
func place(pl *CreditReservation, pod *corev1.Pod, node string) *attempt {
	a := pl.newAttempt(pod, node, testFacts())
	go a.run()
	<-a.answered
	return a
}

func refusing(code ledger.RefusalCode) ledger.Verdict {
	return ledger.Verdict{Refusal: &ledger.Refusal{Code: code}}
}

func TestBarePodBringsItsHold(t *testing.T) {
	l := &scripted{}
	place(newTestPlugin(t, l), gpuPod(""), "n1")
	l.expect(t, "allocate:pod:7:1 on n1 under pod hold true")
}

func TestJobPodDrawsOnItsJob(t *testing.T) {
	l := &scripted{}
	place(newTestPlugin(t, l), gpuPod("job"), "n1")
	l.expect(t, "reservation pod", "allocate:pod:7:1 on n1 under job hold false")
}

func TestPodThatTheWebhookDidNotBelieveUsesItsOwnHold(t *testing.T) {
	l := &scripted{own: map[string]ledger.ReservationState{"pod": ledger.Held}}
	place(newTestPlugin(t, l), gpuPod("job"), "n1")
	l.expect(t, "reservation pod", "allocate:pod:7:1 on n1 under pod hold true")
}

func TestJobPodWithoutAHoldPlacesItsOwnAndRemembersIt(t *testing.T) {
	l := &scripted{answer: func(c ledger.Command) (ledger.Verdict, error) {
		if a, ok := c.(ledger.Allocate); ok && a.Reservation == "job" {
			return refusing(ledger.NoReservation), nil
		}
		return refusing(ledger.InsufficientCredits), nil
	}}
	pl := newTestPlugin(t, l)
	first := place(pl, gpuPod("job"), "n1")
	first.abandon()
	place(pl, gpuPod("job"), "n2")
	l.expect(t,
		"reservation pod",
		"allocate:pod:7:1 on n1 under job hold false",
		"allocate:pod:7:2 on n1 under pod hold true",
		"allocate:pod:7:3 on n2 under pod hold true")
}

func TestPodWithoutABoundIsToldSo(t *testing.T) {
	l := &scripted{answer: func(ledger.Command) (ledger.Verdict, error) { return refusing(ledger.NoReservation), nil }}
	pod := gpuPod("")
	pod.Spec.ActiveDeadlineSeconds = nil
	a := place(newTestPlugin(t, l), pod, "n1")
	if a.answer.committed() || a.answer.refusal == "" {
		t.Errorf("answer is %+v", a.answer)
	}
	l.expect(t, "allocate:pod:7:1 on n1 under pod hold false")
}

func TestReleaseComesBeforeTheNextAttempt(t *testing.T) {
	releasing := make(chan struct{})
	l := &scripted{}
	l.answer = func(c ledger.Command) (ledger.Verdict, error) {
		if _, ok := c.(ledger.ReleaseAllocation); ok {
			l.mu.Unlock()
			<-releasing
			l.mu.Lock()
		}
		return ledger.Verdict{}, nil
	}
	pl := newTestPlugin(t, l)
	first := place(pl, gpuPod(""), "n1")
	first.abandon()
	second := pl.newAttempt(gpuPod(""), "n2", testFacts())
	go second.run()
	close(releasing)
	<-second.answered
	l.expect(t, "allocate:pod:7:1 on n1 under pod hold true", "release:pod:7:2", "allocate:pod:7:3 on n2 under pod hold true")
}

func TestUnknownOutcomeIsAskedForBeforeAnythingElse(t *testing.T) {
	away := errors.New("connection reset")
	failures := 3 // the Allocate, its repetition before the release, and that of the next attempt
	l := &scripted{answer: func(ledger.Command) (ledger.Verdict, error) {
		if failures > 0 {
			failures--
			return ledger.Verdict{}, away
		}
		return ledger.Verdict{}, nil
	}}
	pl := newTestPlugin(t, l)
	first := place(pl, gpuPod(""), "n1")
	if !errors.Is(first.answer.err, away) {
		t.Fatalf("answer is %+v", first.answer)
	}
	first.abandon()
	<-first.over
	second := place(pl, gpuPod(""), "n2")
	second.abandon()
	<-second.over
	place(pl, gpuPod(""), "n3")
	l.expect(t,
		"allocate:pod:7:1 on n1 under pod hold true", // unknown
		"allocate:pod:7:1 on n1 under pod hold true", // unknown still, so the release waits
		"allocate:pod:7:1 on n1 under pod hold true", // unknown still, so the second attempt asks nothing new
		"allocate:pod:7:1 on n1 under pod hold true", // settled
		"release:pod:7:2",
		"allocate:pod:7:3 on n3 under pod hold true")
}

func TestUnreserveAfterPreBindReadsThePodFirst(t *testing.T) {
	for node, want := range map[string]string{"": "release:pod:7:2", "n1": "bound:pod:n1"} {
		live := gpuPod("")
		live.Spec.NodeName = node
		l := &scripted{}
		pl := newTestPlugin(t, l, live)
		a := place(pl, gpuPod(""), "n1")
		a.bindable = true
		a.abandon()
		a.abandon()
		<-a.over
		l.expect(t, "allocate:pod:7:1 on n1 under pod hold true", want)
	}
}

func TestBoundIsConfirmedOnceAndForgotten(t *testing.T) {
	l := &scripted{}
	pl := newTestPlugin(t, l)
	a := place(pl, gpuPod(""), "n1")
	a.bound()
	a.abandon()
	<-a.over
	l.expect(t, "allocate:pod:7:1 on n1 under pod hold true", "bound:pod:n1")
}

func TestStaleEpochIsTold(t *testing.T) {
	l := &scripted{answer: func(ledger.Command) (ledger.Verdict, error) { return refusing(ledger.StaleEpoch), nil }}
	if a := place(newTestPlugin(t, l), gpuPod(""), "n1"); !a.answer.stale() {
		t.Errorf("answer is %+v", a.answer)
	}
}
