package creditreservation

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// decidable is a round that a test closes.
type decidable struct {
	decided chan struct{}
	members []types.UID
}

func newRound() *decidable { return &decidable{decided: make(chan struct{})} }

func (r *decidable) Decided() <-chan struct{} { return r.decided }
func (r *decidable) Members() []types.UID     { return r.members }

func (r *decidable) decide(members ...types.UID) {
	r.members = members
	close(r.decided)
}

// inRound are attempts of pods that joined a round.
func inRound(pl *CreditReservation, r Round, pods ...*corev1.Pod) (attempts []*attempt) {
	for _, pod := range pods {
		a := pl.newAttempt(pod, "node-1", testFacts())
		pl.join(r, a)
		attempts = append(attempts, a)
	}
	return attempts
}

func named(name, job string) *corev1.Pod {
	pod := gpuPod(job)
	pod.Name, pod.UID = name, types.UID(name)
	return pod
}

// describeGang writes down who was asked for together; a single command as ever.
func describeGang(command ledger.AllocateGang) (line string) {
	line = command.Key
	for _, member := range command.Members {
		line += fmt.Sprintf(" %s under %s hold %v", member.PodUID, member.Reservation, member.Hold != nil)
	}
	return line
}

// A closed round is one command, in the order of its members, and one answer for all; nothing is sent before.
func TestPartyIsOneCommand(t *testing.T) {
	l := &scripted{}
	pl := newTestPlugin(t, l)
	round := newRound()
	attempts := inRound(pl, round, named("a", ""), named("b", "job"), named("c", ""))
	l.expect(t)
	round.decide("b", "a", "c")
	for _, a := range attempts {
		<-a.answered
		if !a.answer.committed() || a.epoch != 7 || !a.sent {
			t.Errorf("%s: %+v, epoch %d", a.pod.Name, a.answer, a.epoch)
		}
	}
	l.expect(t, "reservation b", "gang:b:7:1 b under job hold false a under a hold true c under c hold true")
	if len(pl.parties.byRound) != 0 {
		t.Error("a party outlasts its round")
	}
}

// Of a round that was given up the ledger hears nothing.
func TestPartyOfARoundGivenUp(t *testing.T) {
	l := &scripted{}
	pl := newTestPlugin(t, l)
	round := newRound()
	attempts := inRound(pl, round, named("a", ""), named("b", ""))
	round.decide()
	for _, a := range attempts {
		<-a.answered
		if a.answer.err != errAbandoned {
			t.Errorf("%s: %+v", a.pod.Name, a.answer)
		}
		a.abandon()
		<-a.over
	}
	l.expect(t)
}

// A member that left after the round was closed leaves nobody half placed: nothing is asked, all try again.
func TestPartyWhoseMemberLeft(t *testing.T) {
	l := &scripted{}
	pl := newTestPlugin(t, l)
	round := newRound()
	attempts := inRound(pl, round, named("a", ""), named("b", ""))
	attempts[1].abandon()
	round.decide("a", "b")
	<-attempts[0].answered
	if got := attempts[0].answer.explain(); got != "Gang: a member of the gang gave its node up; all are tried again" {
		t.Error(got)
	}
	<-attempts[1].over
	l.expect(t)
}

// All members hear the same refusal, with the gang's sum to wait for.
func TestPartyIsRefused(t *testing.T) {
	l := &scripted{answer: func(ledger.Command) (ledger.Verdict, error) {
		return ledger.Verdict{Refusal: &ledger.Refusal{Code: ledger.InsufficientCredits, Needed: 4800, Message: "gang of 2 pods needs"}}, nil
	}}
	pl := newTestPlugin(t, l)
	round := newRound()
	attempts := inRound(pl, round, named("a", ""), named("b", ""))
	round.decide("a", "b")
	for _, a := range attempts {
		<-a.answered
		if reason, needed := a.answer.waitFor(); reason != forCredits || needed != 4800 || a.answer.explain() != "Credit: gang of 2 pods needs" {
			t.Errorf("%s waits for %v, %d: %s", a.pod.Name, reason, needed, a.answer.explain())
		}
		a.abandon()
		<-a.over
	}
	l.expect(t, "gang:a:7:1 a under a hold true b under b hold true") // and no release: nothing happened
}

// A command of unknown outcome is repeated once, with its own key, by whichever member is first to go on; not again by the others, who
// would undo what came after.
func TestPartyOfUnknownOutcome(t *testing.T) {
	away := true
	l := &scripted{}
	l.answer = func(ledger.Command) (ledger.Verdict, error) {
		if away {
			return ledger.Verdict{}, errors.New("connection lost")
		}
		return ledger.Verdict{}, nil
	}
	pl := newTestPlugin(t, l)
	round := newRound()
	attempts := inRound(pl, round, named("a", ""), named("b", ""))
	round.decide("a", "b")
	<-attempts[0].answered
	<-attempts[1].answered
	l.mu.Lock()
	away = false
	l.mu.Unlock()
	attempts[0].abandon()
	<-attempts[0].over
	again := place(pl, named("a", ""), "node-2")
	if !again.answer.committed() {
		t.Fatalf("%+v", again.answer)
	}
	attempts[1].abandon()
	<-attempts[1].over
	l.expect(t,
		"gang:a:7:1 a under a hold true b under b hold true",
		"gang:a:7:1 a under a hold true b under b hold true", "release:a:7:2",
		"allocate:a:7:3 on node-2 under a hold true",
		"release:b:7:4",
	)
}

// Where a member's Job has no open hold the member brings its own, and no other does.
func TestPartyOfAJobWithoutHold(t *testing.T) {
	refused := false
	l := &scripted{own: map[string]ledger.ReservationState{"held": ledger.Active}}
	l.answer = func(ledger.Command) (ledger.Verdict, error) {
		if !refused {
			refused = true
			return ledger.Verdict{Refusal: &ledger.Refusal{Code: ledger.NoReservation}}, nil
		}
		return ledger.Verdict{}, nil
	}
	pl := newTestPlugin(t, l)
	round := newRound()
	attempts := inRound(pl, round, named("a", "held"), named("b", "unheld"))
	round.decide("a", "b")
	for _, a := range attempts {
		<-a.answered
		if !a.answer.committed() {
			t.Errorf("%s: %+v", a.pod.Name, a.answer)
		}
	}
	l.expect(t, "reservation a", "reservation b",
		"gang:a:7:1 a under held hold false b under unheld hold false",
		"reservation held", "reservation unheld",
		"gang:a:7:2 a under held hold false b under b hold true")
}
