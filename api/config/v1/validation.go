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

func within(name string, d metav1.Duration, least, most time.Duration) field.ErrorList {
	if d.Duration < least || d.Duration > most {
		return field.ErrorList{field.Invalid(field.NewPath(name), d.Duration.String(), fmt.Sprintf("must be from %v to %v", least, most))}
	}
	return nil
}
