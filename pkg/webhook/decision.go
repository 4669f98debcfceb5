package webhook

import (
	"fmt"

	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/workload"
)

// Code says why a request was allowed or denied. Codes are stable: they label metrics and audit events.
type Code string

const (
	// Allowed:

	NotEnrolled Code = "NotEnrolled" // the namespace carries no account label
	NoGPUs      Code = "NoGPUs"
	Covered     Code = "Covered"     // a pod under its Job's hold
	Held        Code = "Held"        // a hold was placed, or would be on a dry run
	AtAdmission Code = "AtAdmission" // it is held when Kueue admits it
	AtPlacement Code = "AtPlacement" // its pods bring their holds when they are placed
	NotRaised   Code = "NotRaised"   // an update within what is held
	Unused      Code = "Unused"      // an account without history or open reservations

	// Denied:

	AccountMissing  Code = "AccountMissing"  // there is no such CreditAccount, or it is being deleted
	AccountDisagree Code = "AccountDisagree" // the account does not list the namespace
	OtherAccount    Code = "OtherAccount"    // the workload claims another account
	OtherScheduler  Code = "OtherScheduler"  // it would be placed without an allocation
	NodeNameSet     Code = "NodeNameSet"     // likewise
	NotMutated      Code = "NotMutated"      // the mutating step did not run, or was undone
	BadTerms        Code = "BadTerms"        // its cost cannot be told
	CostRaised      Code = "CostRaised"      // an update beyond what is held
	AccountUsed     Code = "AccountUsed"     // the account has history, open reservations or children

	// Neither:

	LedgerAway  Code = "LedgerAway"
	ClusterAway Code = "ClusterAway" // the API server could not be read
	BadRequest  Code = "BadRequest"
)

// Decision is what to do with a request. Hold, if set, is to be placed, and the ledger's verdict decides.
type Decision struct {
	Allowed bool
	Code    Code
	// Message is for the person whose request is denied: what is wrong, on which field, and what to do.
	Message string
	Hold    *Hold
}

// Hold is a hold to place and what it was computed from, to explain a refusal.
type Hold struct {
	Command ledger.PlaceHold
	Demand  workload.Demand
	Terms   workload.Terms
	// Subject is what the hold is for, to people: "this Job", "each pod of this Job".
	Subject string
	// ByJobDeadline: the Job's own activeDeadlineSeconds is what bounds the cost, not one pod's maximum.
	ByJobDeadline bool
	// Later is AtAdmission or AtPlacement where it is not to be placed now, and empty where it is.
	Later Code
}

func allow(code Code) Decision { return Decision{Allowed: true, Code: code} }

func deny(code Code, format string, args ...any) Decision {
	return Decision{Code: code, Message: fmt.Sprintf(format, args...)}
}
