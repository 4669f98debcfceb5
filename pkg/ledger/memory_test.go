package ledger

import (
	"reflect"
	"testing"
)

// Every kind of command has a rule on purpose: what moves money by hand or sets something is remembered for good, as is a refused
// hold; everything else says what has to be over.
func TestForgetRules(t *testing.T) {
	t.Parallel()
	leader := Allocate{PodUID: "p", Leader: "a/b", LeaderEpoch: 7}
	refused := func(code RefusalCode) Verdict { return Verdict{Refusal: &Refusal{Code: code}} }
	held := Verdict{Reservation: &Reservation{}}
	for _, c := range []struct {
		command Command
		verdict Verdict
		want    ForgetRule
	}{
		{SetAccount{}, Verdict{}, ""}, {RemoveAccount{}, Verdict{}, ""}, {SetRate{}, Verdict{}, ""},
		{PostGrant{}, Verdict{}, ""}, {Adjust{}, Verdict{}, ""}, {Transfer{}, Verdict{}, ""}, {Refund{PodUID: "p"}, Verdict{}, ""},
		{FreezeAccount{}, Verdict{}, ""}, {UnfreezeAccount{}, Verdict{}, ""}, {PostDue{}, Verdict{}, ""},
		{PlaceHold{UID: "u"}, held, "workload/u"}, {EnsureHold{Hold: PlaceHold{UID: "u"}}, held, "workload/u"}, {PauseHold{UID: "u"}, Verdict{}, "workload/u"},
		{PlaceHold{UID: "u"}, refused(InsufficientCredits), ""}, {EnsureHold{Hold: PlaceHold{UID: "u"}}, refused(SpendingLimited), ""},
		{PlaceHold{UID: "u"}, Verdict{Refusal: &Refusal{Code: TermsDiffer}, Reservation: &Reservation{}}, "workload/u"},
		{RenewHold{UID: "u"}, Verdict{}, "workload/u"}, {CloseReservation{UID: "u"}, Verdict{}, "workload/u"},
		{leader, Verdict{}, "leader/a/b/7"}, {leader, refused(InsufficientCredits), "leader/a/b/7"},
		{AllocateGang{Members: []Allocate{leader}}, Verdict{}, "leader/a/b/7"},
		{ConfirmBound{PodUID: "p"}, Verdict{}, "pod/p"}, {RecordStart{PodUID: "p"}, Verdict{}, "pod/p"},
		{EndAllocation{PodUID: "p"}, Verdict{}, "pod/p"}, {MarkSuspect{PodUID: "p"}, Verdict{}, "pod/p"}, {ClearSuspect{PodUID: "p"}, Verdict{}, "pod/p"},
		{ReleaseAllocation{PodUID: "p"}, Verdict{}, "intent/p"},
		{RecordInterval{PodUID: "p"}, Verdict{}, "age"}, {RecordInterval{PodUID: "p"}, refused(Conflict), "age"},
		{RecordInterval{PodUID: "p"}, refused(OutOfRange), ""}, {EndAllocation{PodUID: "p"}, refused(OutOfRange), ""},
	} {
		if got := forgetRule(c.command, c.verdict); got != c.want {
			t.Errorf("%s, refused %v: %q, want %q", reflect.TypeOf(c.command).Name(), c.verdict.Refusal, got, c.want)
		}
	}
}
