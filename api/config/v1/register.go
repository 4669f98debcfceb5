package v1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// Defaults of FairQueueArgs. Half-life, aging and the longest wait are explained in docs/designs/fairqueue.md; SweepPeriod is how late
// a turn is given at worst, if an event is missed; five seconds spare a write for each pod that has its turn soon.
const (
	DefaultHalfLife         = 7 * 24 * time.Hour
	DefaultAging            = 24 * time.Hour
	DefaultMaxWait          = 24 * time.Hour
	DefaultQuotaPatience    = 10 * time.Minute
	DefaultAlikeRetry       = time.Minute
	DefaultQueueSweepPeriod = 250 * time.Millisecond
	DefaultHistoryPeriod    = 10 * time.Minute
	DefaultHistoryPatience  = 10 * time.Second
	DefaultExplainAfter     = 5 * time.Second
	DefaultExplainPerSecond = 20
)

// AddToScheme adds the arguments to a scheme under kube-scheduler's external and internal versions. One Go type serves
// both, so that converting between them, as kube-scheduler does after decoding, changes nothing.
func AddToScheme(s *runtime.Scheme) error {
	for _, version := range []schema.GroupVersion{configv1.SchemeGroupVersion, config.SchemeGroupVersion} {
		s.AddKnownTypes(version, &CreditReservationArgs{}, &GangArgs{}, &FairQueueArgs{}, &CheckpointPreemptionArgs{})
	}
	s.AddTypeDefaultingFunc(&CreditReservationArgs{}, func(obj any) { SetDefaultsCreditReservationArgs(obj.(*CreditReservationArgs)) })
	s.AddTypeDefaultingFunc(&GangArgs{}, func(obj any) { SetDefaultsGangArgs(obj.(*GangArgs)) })
	s.AddTypeDefaultingFunc(&FairQueueArgs{}, func(obj any) { SetDefaultsFairQueueArgs(obj.(*FairQueueArgs)) })
	s.AddTypeDefaultingFunc(&CheckpointPreemptionArgs{}, func(obj any) { SetDefaultsCheckpointPreemptionArgs(obj.(*CheckpointPreemptionArgs)) })
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

// SetDefaultsFairQueueArgs fills what was left out.
func SetDefaultsFairQueueArgs(args *FairQueueArgs) {
	for _, each := range []struct {
		field     *metav1.Duration
		byDefault time.Duration
	}{
		{&args.HalfLife, DefaultHalfLife},
		{&args.AlikeRetry, DefaultAlikeRetry},
		{&args.SweepPeriod, DefaultQueueSweepPeriod},
		{&args.HistoryPeriod, DefaultHistoryPeriod},
	} {
		if each.field.Duration == 0 {
			each.field.Duration = each.byDefault
		}
	}
	// For these, 0 is a choice.
	for _, each := range []struct {
		field     **metav1.Duration
		byDefault time.Duration
	}{
		{&args.Aging, DefaultAging},
		{&args.MaxWait, DefaultMaxWait},
		{&args.QuotaPatience, DefaultQuotaPatience},
		{&args.HistoryPatience, DefaultHistoryPatience},
		{&args.ExplainAfter, DefaultExplainAfter},
	} {
		if *each.field == nil {
			*each.field = &metav1.Duration{Duration: each.byDefault}
		}
	}
	if args.ExplainPerSecond == 0 {
		args.ExplainPerSecond = DefaultExplainPerSecond
	}
}
