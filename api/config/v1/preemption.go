package v1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// Defaults of CheckpointPreemptionArgs; docs/designs/preemption.md says what follows from them. StopPatience is three times the
// controller's node grace, so that a node that was merely slow is waited for.
const (
	DefaultCheckpointInterval = 30 * time.Minute
	DefaultAgeCap             = 4 * time.Hour
	DefaultMaxRestart         = 30 * time.Minute
	DefaultCooldown           = 10 * time.Minute
	DefaultStopPatience       = 2 * time.Minute
)

// SetDefaultsCheckpointPreemptionArgs fills what was left out.
func SetDefaultsCheckpointPreemptionArgs(args *CheckpointPreemptionArgs) {
	if args.Leadership == "" {
		args.Leadership = DefaultLeadership
	}
	for field, value := range map[*metav1.Duration]time.Duration{
		&args.DefaultInterval: DefaultCheckpointInterval, &args.AgeCap: DefaultAgeCap, &args.StopPatience: DefaultStopPatience,
	} {
		if field.Duration == 0 {
			field.Duration = value
		}
	}
	if args.MaxRestart == nil {
		args.MaxRestart = ptr.To(metav1.Duration{Duration: DefaultMaxRestart})
	}
	if args.Cooldown == nil {
		args.Cooldown = ptr.To(metav1.Duration{Duration: DefaultCooldown})
	}
}

// ValidateCheckpointPreemptionArgs checks defaulted arguments.
func ValidateCheckpointPreemptionArgs(args *CheckpointPreemptionArgs) error {
	var errs field.ErrorList
	for _, problem := range validation.IsDNS1123Subdomain(args.Leadership) {
		errs = append(errs, field.Invalid(field.NewPath("leadership"), args.Leadership, problem))
	}
	errs = append(errs, within("defaultInterval", args.DefaultInterval, time.Minute, 24*time.Hour)...)
	errs = append(errs, within("ageCap", args.AgeCap, args.DefaultInterval.Duration, 720*time.Hour)...)
	errs = append(errs, within("maxRestart", *args.MaxRestart, 0, 24*time.Hour)...)
	errs = append(errs, within("cooldown", *args.Cooldown, 0, time.Hour)...)
	errs = append(errs, within("stopPatience", args.StopPatience, 10*time.Second, time.Hour)...)
	if args.KueueNamespaces != nil {
		if _, err := metav1.LabelSelectorAsSelector(args.KueueNamespaces); err != nil {
			errs = append(errs, field.Invalid(field.NewPath("kueueNamespaces"), args.KueueNamespaces, err.Error()))
		}
	}
	return errs.ToAggregate()
}
