package v1

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	configv1 "k8s.io/kube-scheduler/config/v1"
	config "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	schedulerconfigv1 "k8s.io/kubernetes/pkg/scheduler/apis/config/v1"

	"github.com/gpubank/gpubank/api/v1alpha1"
)

// Defaults of CreditReservationArgs. LedgerTimeout is several of the store's own reconnections; SweepPeriod is as long
// as the controller takes to show a change of balance, so that a missed event doubles the wait at most; RefusalRetry
// is kube-scheduler's own longest backoff, three times.
const (
	DefaultLeadership    = v1alpha1.SchedulerName
	DefaultLedgerTimeout = 10 * time.Second
	DefaultSweepPeriod   = time.Second
	DefaultRefusalRetry  = 30 * time.Second
)

// Defaults of GangArgs. All members of a gang that fits get their nodes in one scheduling cycle each, some milliseconds, so
// DefaultCollectTimeout is for members that are held up elsewhere; the sweep finds what no event tells.
const (
	DefaultCollectTimeout  = 30 * time.Second
	DefaultGangSweepPeriod = time.Second
)

// AddToScheme adds the arguments to a scheme under kube-scheduler's external and internal versions. One Go type serves
// both, so that converting between them, as kube-scheduler does after decoding, changes nothing.
func AddToScheme(s *runtime.Scheme) error {
	for _, version := range []schema.GroupVersion{configv1.SchemeGroupVersion, config.SchemeGroupVersion} {
		s.AddKnownTypes(version, &CreditReservationArgs{}, &GangArgs{})
	}
	s.AddTypeDefaultingFunc(&CreditReservationArgs{}, func(obj any) { SetDefaultsCreditReservationArgs(obj.(*CreditReservationArgs)) })
	s.AddTypeDefaultingFunc(&GangArgs{}, func(obj any) { SetDefaultsGangArgs(obj.(*GangArgs)) })
	return nil
}

// Register makes kube-scheduler's configuration loader know the arguments. Call it once, before a configuration is read.
func Register() error {
	// The loader decodes with one scheme, and defaults and converts plugin arguments with another.
	if err := AddToScheme(scheme.Scheme); err != nil {
		return err
	}
	return AddToScheme(schedulerconfigv1.GetPluginArgConversionScheme())
}

// SetDefaultsCreditReservationArgs fills what was left out.
func SetDefaultsCreditReservationArgs(args *CreditReservationArgs) {
	if args.Leadership == "" {
		args.Leadership = DefaultLeadership
	}
	if args.LedgerTimeout.Duration == 0 {
		args.LedgerTimeout.Duration = DefaultLedgerTimeout
	}
	if args.SweepPeriod.Duration == 0 {
		args.SweepPeriod.Duration = DefaultSweepPeriod
	}
	if args.RefusalRetry.Duration == 0 {
		args.RefusalRetry.Duration = DefaultRefusalRetry
	}
}

// SetDefaultsGangArgs fills what was left out.
func SetDefaultsGangArgs(args *GangArgs) {
	if args.CollectTimeout.Duration == 0 {
		args.CollectTimeout.Duration = DefaultCollectTimeout
	}
	if args.SweepPeriod.Duration == 0 {
		args.SweepPeriod.Duration = DefaultGangSweepPeriod
	}
}
