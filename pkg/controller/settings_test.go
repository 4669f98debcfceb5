package controller

import (
	"flag"
	"strings"
	"testing"
)

func TestSettings(t *testing.T) {
	for _, test := range []struct {
		arguments []string
		problem   string
	}{
		{[]string{"--database-url-file=/etc/gpubank/url"}, ""},
		{nil, "--database-url-file is missing"},
		{[]string{"--database-url-file=f", "--hold-expiry=30s"}, "--hold-expiry=30s is below 1m30s"},
		{[]string{"--database-url-file=f", "--hold-expiry=2s", "--allow-short-hold-expiry"}, ""},
		{[]string{"--database-url-file=f", "--node-grace=0s"}, "--node-grace=0s is below 1s"},
		{[]string{"--database-url-file=f", "--compact-after=5m"}, "--compact-after=5m0s is below 1h0m0s"},
		{[]string{"--database-url-file=f", "--remember=1h"}, "--remember=1h0m0s is below 24h0m0s"},
		{[]string{"--database-url-file=f", "--remember-gpus=-1h"}, "--remember-gpus=-1h0m0s is below 24h0m0s"},
		{[]string{"--database-url-file=f", "--compact-after=0", "--remember=0", "--remember-gpus=0"}, ""},
		{[]string{"--database-url-file=f", "--upkeep-interval=10ms"}, "--upkeep-interval=10ms is below 1s"},
	} {
		var settings Settings
		flags := flag.NewFlagSet("test", flag.ContinueOnError)
		settings.Bind(flags)
		if err := flags.Parse(test.arguments); err != nil {
			t.Fatal(err)
		}
		err := settings.Validate()
		if test.problem == "" && err != nil || test.problem != "" && (err == nil || !strings.Contains(err.Error(), test.problem)) {
			t.Errorf("%v: %v, want %q", test.arguments, err, test.problem)
		}
	}
}
