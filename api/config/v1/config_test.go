package v1

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/validation"
)

func TestMain(m *testing.M) {
	if err := Register(); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

const manifest = "../../../manifests/scheduler/scheduler-config.yaml"

func load(t *testing.T, text string) (*schedulerconfig.KubeSchedulerConfiguration, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return options.LoadConfigFromFile(klog.Background(), path)
}

func argsOf(t *testing.T, config *schedulerconfig.KubeSchedulerConfiguration) *CreditReservationArgs {
	t.Helper()
	for _, entry := range config.Profiles[0].PluginConfig {
		if args, ok := entry.Args.(*CreditReservationArgs); ok {
			return args
		}
	}
	t.Fatal("the configuration has no CreditReservationArgs")
	return nil
}

func TestManifestIsValid(t *testing.T) {
	text, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	config, err := load(t, string(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := validation.ValidateKubeSchedulerConfiguration(config); err != nil {
		t.Error(err)
	}
	args := argsOf(t, config)
	if err := ValidateCreditReservationArgs(args); err != nil {
		t.Error(err)
	}
	args.TypeMeta = metav1.TypeMeta{}
	want := &CreditReservationArgs{
		Leadership:    "gpubank-scheduler",
		LedgerTimeout: metav1.Duration{Duration: 10 * time.Second},
		SweepPeriod:   metav1.Duration{Duration: DefaultSweepPeriod},
		RefusalRetry:  metav1.Duration{Duration: DefaultRefusalRetry},
	}
	if diff := cmp.Diff(want, args); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestArgumentsAreDefaultedWithoutPluginConfig(t *testing.T) {
	config, err := load(t, `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: s
  plugins:
    multiPoint:
      enabled:
      - name: CreditReservation
`)
	if err != nil {
		t.Fatal(err)
	}
	if got := argsOf(t, config).LedgerTimeout.Duration; got != DefaultLedgerTimeout {
		t.Errorf("ledgerTimeout is %v", got)
	}
}

func TestUnknownArgumentIsAnError(t *testing.T) {
	_, err := load(t, `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: s
  pluginConfig:
  - name: CreditReservation
    args:
      ledgerTimeuot: 10s
`)
	if err == nil || !strings.Contains(err.Error(), "ledgerTimeuot") {
		t.Errorf("a misspelt argument was taken: %v", err)
	}
}

func TestValidateCreditReservationArgs(t *testing.T) {
	for name, spoil := range map[string]func(*CreditReservationArgs){
		"leadership":    func(a *CreditReservationArgs) { a.Leadership = "Not A Name" },
		"ledgerTimeout": func(a *CreditReservationArgs) { a.LedgerTimeout.Duration = time.Millisecond },
		"sweepPeriod":   func(a *CreditReservationArgs) { a.SweepPeriod.Duration = time.Hour },
		"refusalRetry":  func(a *CreditReservationArgs) { a.RefusalRetry.Duration = -time.Second },
	} {
		args := &CreditReservationArgs{}
		SetDefaultsCreditReservationArgs(args)
		if err := ValidateCreditReservationArgs(args); err != nil {
			t.Fatal(err)
		}
		spoil(args)
		if err := ValidateCreditReservationArgs(args); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestValidateGangArgs(t *testing.T) {
	for name, spoil := range map[string]func(*GangArgs){
		"collectTimeout": func(a *GangArgs) { a.CollectTimeout.Duration = 500 * time.Millisecond },
		"sweepPeriod":    func(a *GangArgs) { a.SweepPeriod.Duration = time.Hour },
	} {
		args := &GangArgs{}
		SetDefaultsGangArgs(args)
		if err := ValidateGangArgs(args); err != nil {
			t.Fatal(err)
		}
		spoil(args)
		if err := ValidateGangArgs(args); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestValidateFairQueueArgs(t *testing.T) {
	for name, spoil := range map[string]func(*FairQueueArgs){
		"halfLife":         func(a *FairQueueArgs) { a.HalfLife.Duration = time.Second },
		"aging":            func(a *FairQueueArgs) { a.Aging.Duration = -time.Second },
		"maxWait":          func(a *FairQueueArgs) { a.MaxWait.Duration = 9000 * time.Hour },
		"quotaPatience":    func(a *FairQueueArgs) { a.QuotaPatience.Duration = 25 * time.Hour },
		"alikeRetry":       func(a *FairQueueArgs) { a.AlikeRetry.Duration = time.Millisecond },
		"sweepPeriod":      func(a *FairQueueArgs) { a.SweepPeriod.Duration = time.Minute },
		"historyPeriod":    func(a *FairQueueArgs) { a.HistoryPeriod.Duration = time.Second },
		"historyPatience":  func(a *FairQueueArgs) { a.HistoryPatience.Duration = time.Hour },
		"explainAfter":     func(a *FairQueueArgs) { a.ExplainAfter.Duration = 2 * time.Hour },
		"explainPerSecond": func(a *FairQueueArgs) { a.ExplainPerSecond = -1 },
	} {
		args := &FairQueueArgs{}
		SetDefaultsFairQueueArgs(args)
		if err := ValidateFairQueueArgs(args); err != nil {
			t.Fatal(err)
		}
		spoil(args)
		if err := ValidateFairQueueArgs(args); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestZeroIsAChoiceWhereItMeansSomething(t *testing.T) {
	args := &FairQueueArgs{MaxWait: &metav1.Duration{}, Aging: &metav1.Duration{}}
	SetDefaultsFairQueueArgs(args)
	if args.MaxWait.Duration != 0 || args.Aging.Duration != 0 || args.QuotaPatience.Duration != DefaultQuotaPatience {
		t.Errorf("defaulted to %+v", args)
	}
}
