package v1

import (
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestCheckpointPreemptionArgs(t *testing.T) {
	text, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	config, err := load(t, string(text))
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, entry := range config.Profiles[0].PluginConfig {
		if args, ok := entry.Args.(*CheckpointPreemptionArgs); ok {
			found = true
			if err := ValidateCheckpointPreemptionArgs(args); err != nil || args.Cooldown.Duration != DefaultCooldown {
				t.Errorf("%+v: %v", args, err)
			}
		}
	}
	if !found {
		t.Error("the configuration has no CheckpointPreemptionArgs")
	}
	for name, spoil := range map[string]func(*CheckpointPreemptionArgs){
		"leadership":      func(a *CheckpointPreemptionArgs) { a.Leadership = "Not A Name" },
		"defaultInterval": func(a *CheckpointPreemptionArgs) { a.DefaultInterval.Duration = time.Second },
		"ageCap":          func(a *CheckpointPreemptionArgs) { a.AgeCap.Duration = time.Minute },
		"maxRestart":      func(a *CheckpointPreemptionArgs) { a.MaxRestart.Duration = -time.Second },
		"cooldown":        func(a *CheckpointPreemptionArgs) { a.Cooldown.Duration = 2 * time.Hour },
		"stopPatience":    func(a *CheckpointPreemptionArgs) { a.StopPatience.Duration = time.Second },
		"kueueNamespaces": func(a *CheckpointPreemptionArgs) {
			a.KueueNamespaces = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Perhaps"}}}
		},
	} {
		args := &CheckpointPreemptionArgs{}
		SetDefaultsCheckpointPreemptionArgs(args)
		if err := ValidateCheckpointPreemptionArgs(args); err != nil {
			t.Fatal(err)
		}
		spoil(args)
		if err := ValidateCheckpointPreemptionArgs(args); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
