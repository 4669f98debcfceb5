package webhook

import (
	"fmt"
	"strings"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
)

// explainRefusal says what a refused hold costs, what is available, and what would help.
func explainRefusal(refusal *ledger.Refusal, hold *Hold) string {
	command := hold.Command
	kind := command.Workload.Kind
	switch refusal.Code {
	case ledger.InsufficientCredits:
	case ledger.UnknownAccount:
		return fmt.Sprintf("account %s is not in the ledger yet; the controller enters it within seconds of its creation, so try again, and tell the cluster's operator if it stays so", command.Account)
	case ledger.UnknownClass:
		return fmt.Sprintf("GPU class %s has no price in the ledger yet; the controller enters it within seconds of its creation, so try again, and tell the cluster's operator if it stays so", command.Class)
	default:
		return fmt.Sprintf("the ledger refuses to set credits aside for this %s: %s (%s)", kind, refusal.Message, refusal.Code)
	}

	var text strings.Builder
	fmt.Fprintf(&text, "this %s needs up to %s credits (%s of class %s), and account %s has %s available",
		kind, ledger.DisplayCredits(refusal.Needed), gpuSeconds(hold), command.Class, refusal.Account, ledger.DisplayCredits(max(0, refusal.Available)))
	if refusal.Account != command.Account {
		fmt.Fprintf(&text, " (it is above account %s, whose spending its limit bounds too)", command.Account)
	}
	fmt.Fprintf(&text, "; %s, or ask for a grant", whatFits(refusal, hold))
	return text.String()
}

func gpuSeconds(hold *Hold) string {
	if hold.Terms.MaxGPUs == hold.Demand.GPUs && hold.Terms.PodMaxSeconds > 0 && !hold.ByJobDeadline &&
		hold.Terms.GPUSeconds == hold.Demand.GPUs*hold.Terms.PodMaxSeconds {
		unit := "GPUs"
		if hold.Demand.GPUs == 1 {
			unit = "GPU"
		}
		return fmt.Sprintf("%d %s × %ds", hold.Demand.GPUs, unit, hold.Terms.PodMaxSeconds)
	}
	return fmt.Sprintf("%d GPU-seconds", hold.Terms.GPUSeconds)
}

// whatFits computes the longest run time with which the same workload could be paid now. Rounding down is in the user's
// favour: what it says does fit.
func whatFits(refusal *ledger.Refusal, hold *Hold) string {
	terms := hold.Terms
	rate := int64(refusal.Needed) / terms.GPUSeconds // exact: Needed is rate × GPUSeconds
	if rate == 0 || refusal.Available <= 0 {
		return "nothing fits now: wait until running work has ended"
	}
	payable := int64(refusal.Available) / rate // GPU-seconds
	if hold.ByJobDeadline {
		if seconds := payable / terms.MaxGPUs; seconds >= 1 {
			return fmt.Sprintf("it would fit with activeDeadlineSeconds of at most %d on the Job", seconds)
		}
	} else {
		// GPUSeconds is GPUs × pods × PodMaxSeconds here, so this is GPUs × pods.
		gpus := terms.GPUSeconds / terms.PodMaxSeconds
		if seconds := payable / gpus; seconds >= 1 {
			return fmt.Sprintf("it would fit with at most %ds per pod (activeDeadlineSeconds or the annotation %s)", seconds, v1alpha1.MaxRuntimeAnnotation)
		}
	}
	return "it would not fit for even one second: ask for fewer GPUs or pods"
}

// quote says what a dry run would set aside.
func quote(hold *Hold, amount ledger.Microcredits) string {
	return fmt.Sprintf("gpubank: would set aside %s credits of account %s (%s of class %s)",
		ledger.DisplayCredits(amount), hold.Command.Account, gpuSeconds(hold), hold.Command.Class)
}
