package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpubank/gpubank/pkg/ledger"
)

const jobFile = `# what a researcher submits
apiVersion: batch/v1
kind: Job
metadata: {generateName: train-}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: none.invalid/main, resources: {limits: {nvidia.com/gpu: 4}}}]
---
`

// anyCluster is a kubeconfig whose cluster nobody asks here.
const anyCluster = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c, namespace: ml, user: u}}]
users: [{name: u, user: {}}]
current-context: c
`

func files(t *testing.T, contents map[string]string) (path func(name string) string) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range contents {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return func(name string) string { return filepath.Join(dir, name) }
}

func TestQuote(t *testing.T) {
	t.Parallel()
	path := files(t, map[string]string{"job.yaml": jobFile, "kubeconfig": anyCluster, "two.yaml": jobFile + jobFile,
		"misspelt.yaml": strings.Replace(jobFile, "template:", "templat:", 1), "cm.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n",
		"crd.yaml": "apiVersion: x.invalid/v1\nkind: Train\nmetadata: {name: c}\n", "empty.yaml": "# nothing\n"})
	team := ledger.Account{Name: "team-a", Parent: "lab", Balance: 340 * ledger.Credit, Reserved: 40 * ledger.Credit, SubtreeBalance: 340 * ledger.Credit,
		SubtreeReserved: 40 * ledger.Credit, SubtreeRunning: 2, SubtreeHeld: 40 * ledger.Credit, SubtreeSpent: 10 * ledger.Credit, SpentSince: ledger.PeriodMonth.Start(now),
		Policy: ledger.Policy{RunningJobs: 2, Spending: ledger.SpendingLimit{Amount: 1_000 * ledger.Credit, Period: ledger.PeriodMonth}}}
	lab := ledger.Account{Name: "lab", SubtreeBalance: 20_340 * ledger.Credit, SubtreeReserved: 40 * ledger.Credit, Frozen: "under audit"}
	held := Quote{Admitted: true, Code: "Held", Account: "team-a", Subject: "this Job", Class: "h100", MaxGPUs: 4, GPUSeconds: 200, Cost: 200 * ledger.Credit, Warnings: []string{"gpubank: each pod is stopped after 50s"}}
	refused := Quote{Code: "InsufficientCredits", Message: "this Job needs up to 2,400 credits, and account team-a has 300 available", Account: "team-a", Subject: "this Job", Class: "h100", MaxGPUs: 4,
		GPUSeconds: 2_400, Cost: 2_400 * ledger.Credit, Refusal: &ledger.Refusal{Code: ledger.InsufficientCredits, Account: "team-a", Needed: 2_400 * ledger.Credit, Available: 300 * ledger.Credit}}
	for name, test := range map[string]struct {
		quote     Quote
		failure   error
		arguments string
		code      int
		want      string // output, or what the error says
	}{
		"yes": {held, nil, "-f job.yaml", 0, `Job ml/train-* would be admitted.

  costs     at most 200 credits, this Job
  for       200 GPU-seconds of class h100, 4 GPUs at once
  account   team-a

What is left now, on the account and those above it

ACCOUNT        CREDITS  TO SPEND    PERIOD ENDS (UTC)  JOBS AT ONCE
team-a (pays)      300       950  2026-04-01 00:00:00             0
lab             20,300         -                    -             -

Its pods would wait: account team-a already runs as many jobs at once as it may.

Account lab is frozen: under audit

gpubank: each pod is stopped after 50s
`},
		"no": {refused, nil, "-f job.yaml -n other", 3, `Job other/train-* would NOT be admitted: this Job needs up to 2,400 credits, and
account team-a has 300 available.

  costs     at most 2,400 credits, this Job
  for       2,400 GPU-seconds of class h100, 4 GPUs at once
  account   team-a
  refused   by a limit of account team-a: 2,100 credits too little
`},
		"at placement": {Quote{Admitted: true, Code: "AtPlacement", Account: "team-a", Subject: "each pod of this Job", Class: "h100", MaxGPUs: 1, GPUSeconds: 60, Cost: 60 * ledger.Credit},
			nil, "-f job.yaml", 0, "costs     at most 60 credits, each pod of this Job\n"},
		"at Kueue's admission": {Quote{Admitted: true, Code: "AtAdmission", Account: "team-a", Subject: "this Job", Class: "h100", MaxGPUs: 1, GPUSeconds: 60, Cost: 60 * ledger.Credit},
			nil, "-f job.yaml", 0, "Its credits are set aside when Kueue admits\nit.\n"},
		"of the class that Kueue chooses": {Quote{Admitted: true, Code: "AtAdmission", Account: "team-a"}, nil, "-f job.yaml", 0, "depends on the GPU class that\nKueue chooses"},
		"as JSON":                         {refused, nil, "-f job.yaml -o json", 3, `"short_by_microcredits": 2100000000`},
		"rooms as JSON":                   {held, nil, "-f job.yaml -o json", 0, `"spending_left_microcredits": 950000000`},
		"not enrolled":                    {Quote{Admitted: true, Code: "NotEnrolled"}, nil, "-f job.yaml", 0, "no account pays for its\nnamespace, so GPUs"},
		"no GPUs":                         {Quote{Admitted: true, Code: "NoGPUs", Account: "team-a"}, nil, "-f job.yaml", 0, "it asks for no GPU"},
		"standard input":                  {held, nil, "-f -", 0, "would be admitted"},
		"away":                            {held, errors.New("the ledger is away"), "-f job.yaml", 1, "quote Job ml/train-*: the ledger is away"},
		"no file":                         {held, nil, "", 1, "--filename is missing"},
		"no such file":                    {held, nil, "-f none.yaml", 1, "none.yaml"},
		"an argument":                     {held, nil, "job.yaml", 1, "unknown command"},
		"an unknown flag":                 {held, nil, "--file job.yaml", 1, "unknown flag"},
		"two objects":                     {held, nil, "-f two.yaml", 1, "holds 2 objects"},
		"nothing":                         {held, nil, "-f empty.yaml", 1, "holds 0 objects"},
		"misspelt":                        {held, nil, "-f misspelt.yaml", 1, `unknown field "spec.templat"`},
		"a ConfigMap":                     {held, nil, "-f cm.yaml", 1, "it is a ConfigMap, not a Job or Pod"},
		"unknown kind":                    {held, nil, "-f crd.yaml", 1, "it is neither a Job (batch/v1) nor a Pod (v1)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := &reader{path: []ledger.Account{team, lab}}
			deps := Dependencies{
				OpenLedger: func(context.Context, string) (Ledger, error) { return store, nil },
				Now:        func() time.Time { return now },
				Quote: func(_ context.Context, _ client.Reader, _ Quoter, namespace string, workload client.Object) (Quote, error) {
					job, ok := workload.(*batchv1.Job)
					if !ok || job.UID == "" || job.Name != "train-quote" || job.Namespace != namespace {
						t.Errorf("asked about %+v in %s", workload, namespace)
					}
					return test.quote, test.failure
				},
			}
			arguments := []string{"quote", "--kubeconfig=" + path("kubeconfig"), "--database-url-file=f"}
			for _, argument := range strings.Fields(test.arguments) {
				if strings.HasSuffix(argument, ".yaml") {
					argument = path(argument)
				}
				arguments = append(arguments, argument)
			}
			command := NewCommand(deps)
			var out strings.Builder
			command.SetOut(&out)
			command.SetErr(&out)
			command.SetIn(strings.NewReader(jobFile))
			command.SetArgs(arguments)
			err := command.ExecuteContext(t.Context())
			said := out.String()
			if test.code == 1 {
				said = err.Error()
			}
			if ExitCode(err) != test.code || !strings.Contains(said, test.want) {
				t.Errorf("exit code %d, %v\n%s\nwant %d and\n%s", ExitCode(err), err, out.String(), test.code, test.want)
			}
		})
	}
}
