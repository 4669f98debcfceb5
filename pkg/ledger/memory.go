package ledger

import "strconv"

// ForgetRule says when a remembered answer may be forgotten, because the same command can then do no harm any more: it is
// answered the same by what the ledger's rows say, or refused since what it is about is over. Empty: never. Whatever the rule,
// an answer is kept for as long as the operator says (the controller's --remember). See docs/designs/growth.md.
type ForgetRule string

// The rules. What they wait for is final, so that no race with a command can be lost.
const (
	// forgetNever is for what the rows cannot tell later: money moved by hand, settings, refusals that another day decides anew.
	forgetNever ForgetRule = ""
	// forgetWithAge is for intervals: their time is charged, or in the way of other pieces, and says so for ever.
	forgetWithAge ForgetRule = "age"
	// forgetPod, forgetIntent and forgetWorkload are followed by a UID. The pod's allocation has ended; or its intent was given
	// up and the workload is closed; the workload's reservation is closed.
	forgetPod      ForgetRule = "pod/"
	forgetIntent   ForgetRule = "intent/"
	forgetWorkload ForgetRule = "workload/"
	// forgetLeader is followed by a leadership and an epoch. A newer one has begun: the old one's commands are refused before
	// anything is remembered (I7).
	forgetLeader ForgetRule = "leader/"
)

// forgetRule is the rule for a command that was answered with a verdict, beside which are the rows that it concerns.
func forgetRule(command Command, v Verdict) ForgetRule {
	if v.Refusal != nil && v.Refusal.Code == OutOfRange {
		return forgetNever // there may be room another day
	}
	switch c := command.(type) {
	case RecordInterval:
		return forgetWithAge
	case PlaceHold:
		return forgetHold(c.UID, v)
	case EnsureHold:
		return forgetHold(c.Hold.UID, v)
	case PauseHold:
		return forgetWorkload + ForgetRule(c.UID)
	case RenewHold:
		return forgetWorkload + ForgetRule(c.UID)
	case CloseReservation:
		return forgetWorkload + ForgetRule(c.UID)
	case Allocate:
		return forgetLeaderEpoch(c.Leader, c.LeaderEpoch)
	case AllocateGang:
		return forgetLeaderEpoch(c.Members[0].Leader, c.Members[0].LeaderEpoch) // Check made sure that all name the same
	case ConfirmBound:
		return forgetPod + ForgetRule(c.PodUID)
	case RecordStart:
		return forgetPod + ForgetRule(c.PodUID)
	case MarkSuspect:
		return forgetPod + ForgetRule(c.PodUID)
	case ClearSuspect:
		return forgetPod + ForgetRule(c.PodUID)
	case EndAllocation:
		return forgetPod + ForgetRule(c.PodUID)
	case ReleaseAllocation:
		return forgetIntent + ForgetRule(c.PodUID)
	}
	return forgetNever
}

// forgetHold: of a hold that was refused nothing else tells, unless there is a reservation all the same.
func forgetHold(uid string, v Verdict) ForgetRule {
	if v.Reservation == nil {
		return forgetNever
	}
	return forgetWorkload + ForgetRule(uid)
}

func forgetLeaderEpoch(leader string, epoch int64) ForgetRule {
	return forgetLeader + ForgetRule(leader) + "/" + ForgetRule(strconv.FormatInt(epoch, 10))
}
