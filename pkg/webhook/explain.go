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
	switch refusal.Code {
	case ledger.InsufficientCredits:
		return fmt.Sprintf("%s needs up to %s credits (%s of class %s), and account %s has %s available%s; %s, or ask for a grant",
			hold.Subject, ledger.DisplayCredits(refusal.Needed), gpuSeconds(hold), command.Class, refusal.Account,
			ledger.DisplayCredits(max(0, refusal.Available)), above(refusal, command), whatFits(refusal, hold))
	case ledger.SpendingLimited:
		return fmt.Sprintf("%s (%s of class %s) %s%s; %s, or wait for the next period",
			hold.Subject, gpuSeconds(hold), command.Class, refusal.Message, above(refusal, command), whatFits(refusal, hold))
	case ledger.AccountFrozen:
		return fmt.Sprintf("no credits can be set aside for %s (%s of class %s): %s%s",
			hold.Subject, gpuSeconds(hold), command.Class, refusal.Message, above(refusal, command))
	case ledger.UnknownAccount:
		return fmt.Sprintf("account %s is not in the ledger yet; the controller enters it within seconds of its creation, so try again, and tell the cluster's operator if it stays so", command.Account)
	case ledger.UnknownClass:
		return fmt.Sprintf("GPU class %s has no price in the ledger yet; the controller enters it within seconds of its creation, so try again, and tell the cluster's operator if it stays so", command.Class)
	}
	return fmt.Sprintf("the ledger refuses to set credits aside for %s: %s (%s)", hold.Subject, refusal.Message, refusal.Code)
}

// explainNever says why what is needed could not be set aside in any period.
func explainNever(needed ledger.Microcredits, limit tightest, hold *Hold) string {
	refusal := &ledger.Refusal{Account: limit.account, Needed: needed, Available: limit.spending.Amount}
	return fmt.Sprintf("%s needs up to %s credits (%s of class %s), more than the %s that account %s may spend in a whole %s%s; %s",
		hold.Subject, ledger.DisplayCredits(needed), gpuSeconds(hold), hold.Command.Class, ledger.DisplayCredits(limit.spending.Amount),
		limit.account, strings.ToLower(string(limit.spending.Period)), above(refusal, hold.Command), whatFits(refusal, hold))
}

// above says how an account that is not the workload's own comes to refuse it.
func above(refusal *ledger.Refusal, command ledger.PlaceHold) string {
	if refusal.Account == command.Account {
		return ""
	}
	return fmt.Sprintf(" (it is above account %s, whose spending it bounds or pays for)", command.Account)
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

// quoteLater is quote where the hold is placed later.
func quoteLater(hold *Hold, amount ledger.Microcredits) string {
	return fmt.Sprintf("gpubank: would set aside nothing now; %s needs %s credits of account %s (%s of class %s) when it is %s, which it could have now",
		hold.Subject, ledger.DisplayCredits(amount), hold.Command.Account, gpuSeconds(hold), hold.Command.Class, laterWord(hold))
}

// laterWord is what happens to a workload when its hold is placed.
func laterWord(hold *Hold) string {
	if hold.Later == AtAdmission {
		return "admitted by Kueue"
	}
	return "placed"
}
