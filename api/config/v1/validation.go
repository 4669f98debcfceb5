package v1

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateCreditReservationArgs checks defaulted arguments.
func ValidateCreditReservationArgs(args *CreditReservationArgs) error {
	var errs field.ErrorList
	for _, problem := range validation.IsDNS1123Subdomain(args.Leadership) {
		errs = append(errs, field.Invalid(field.NewPath("leadership"), args.Leadership, problem))
	}
	errs = append(errs, within("ledgerTimeout", args.LedgerTimeout, time.Second, 5*time.Minute)...)
	errs = append(errs, within("sweepPeriod", args.SweepPeriod, 100*time.Millisecond, time.Minute)...)
	errs = append(errs, within("refusalRetry", args.RefusalRetry, time.Second, time.Hour)...)
	return errs.ToAggregate()
}

// ValidateGangArgs checks defaulted arguments.
func ValidateGangArgs(args *GangArgs) error {
	errs := within("collectTimeout", args.CollectTimeout, time.Second, time.Hour)
	errs = append(errs, within("sweepPeriod", args.SweepPeriod, 100*time.Millisecond, time.Minute)...)
	return errs.ToAggregate()
}

// ValidateFairQueueArgs checks defaulted arguments.
func ValidateFairQueueArgs(args *FairQueueArgs) error {
	const year = 8760 * time.Hour
	var errs field.ErrorList
	errs = append(errs, within("halfLife", args.HalfLife, time.Minute, year)...)
	errs = append(errs, within("aging", *args.Aging, 0, year)...)
	errs = append(errs, within("maxWait", *args.MaxWait, 0, year)...)
	errs = append(errs, within("quotaPatience", *args.QuotaPatience, 0, 24*time.Hour)...)
	errs = append(errs, within("alikeRetry", args.AlikeRetry, time.Second, time.Hour)...)
	errs = append(errs, within("sweepPeriod", args.SweepPeriod, 50*time.Millisecond, 10*time.Second)...)
	errs = append(errs, within("historyPeriod", args.HistoryPeriod, time.Minute, 24*time.Hour)...)
	errs = append(errs, within("historyPatience", *args.HistoryPatience, 0, 10*time.Minute)...)
	errs = append(errs, within("explainAfter", *args.ExplainAfter, 0, time.Hour)...)
	if args.ExplainPerSecond < 1 || args.ExplainPerSecond > 1000 {
		errs = append(errs, field.Invalid(field.NewPath("explainPerSecond"), args.ExplainPerSecond, "must be from 1 to 1000"))
	}
	return errs.ToAggregate()
}

func within(name string, d metav1.Duration, least, most time.Duration) field.ErrorList {
	if d.Duration < least || d.Duration > most {
		return field.ErrorList{field.Invalid(field.NewPath(name), d.Duration.String(), fmt.Sprintf("must be from %v to %v", least, most))}
	}
	return nil
}
