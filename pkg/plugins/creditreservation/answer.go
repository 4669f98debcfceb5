package creditreservation

import (
	"context"
	"errors"
	"fmt"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// answer is what an attempt found out.
type answer struct {
	// verdict is set when the ledger answered.
	verdict ledger.Verdict
	// refusal overrides the verdict's, where the reason is ours.
	refusal string
	// err is the world's failure: no answer.
	err error
}

// errAbandoned says that the pod was unreserved before anything was asked.
var errAbandoned = errors.New("the pod was unreserved")

func (a answer) committed() bool { return a.err == nil && a.refusal == "" && a.verdict.Refusal == nil }

// stale reports that a newer leader writes to the ledger.
func (a answer) stale() bool {
	return a.err == nil && a.verdict.Refusal != nil && a.verdict.Refusal.Code == ledger.StaleEpoch
}

// explain says what a pod waits for, beginning with the reason word, with the numbers. It is not called for a commit.
func (a answer) explain() string {
	switch {
	case errors.Is(a.err, errMemberLeft):
		return "Gang: " + a.err.Error() + "; all are tried again"
	case a.err != nil:
		return fmt.Sprintf("Ledger: no answer (%v); nothing is bound until the ledger has committed it, and this pod is tried again by itself", cause(a.err))
	case a.refusal != "":
		return "Credit: " + a.refusal
	case a.verdict.Refusal.Code == ledger.RunningLimited:
		return "Quota: " + a.verdict.Refusal.Message
	}
	return "Credit: " + a.verdict.Refusal.Message
}

// cause strips a timeout of the wrapping that only a developer reads.
func cause(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return errors.New("it did not answer in time")
	}
	return err
}

// waitFor turns an answer that is no commit into what the pod waits for.
func (a answer) waitFor() (reason, ledger.Microcredits) {
	switch {
	case a.err != nil:
		return forLedger, 0
	case a.refusal == "" && a.verdict.Refusal.Code == ledger.InsufficientCredits:
		return forCredits, a.verdict.Refusal.Needed
	case a.refusal == "" && a.verdict.Refusal.Code == ledger.RunningLimited:
		return forQuota, 0
	}
	return forChange, 0
}
