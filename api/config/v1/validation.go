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
	within := func(name string, d metav1.Duration, least, most time.Duration) {
		if d.Duration < least || d.Duration > most {
			errs = append(errs, field.Invalid(field.NewPath(name), d.Duration.String(), fmt.Sprintf("must be from %v to %v", least, most)))
		}
	}
	within("ledgerTimeout", args.LedgerTimeout, time.Second, 5*time.Minute)
	within("sweepPeriod", args.SweepPeriod, 100*time.Millisecond, time.Minute)
	within("refusalRetry", args.RefusalRetry, time.Second, time.Hour)
	return errs.ToAggregate()
}
