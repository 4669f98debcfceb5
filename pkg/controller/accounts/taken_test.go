package accounts

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
)

// What the API server stores is what the ledger takes: nobody creates an immutable object that can never be posted, or an
// account that never becomes ready. Where the API is narrower on purpose, the test says so.

func TestPolicyIsTakenByBothOrNeither(t *testing.T) {
	t.Parallel()
	crd := define(t, "gpubank.io_creditaccounts.yaml")
	amounts := []string{"", "0", "0.0", "-1", "-0", "0.000001", "1", "12.5", "01", "1e3", "1.0000001", "3999999999999.999999", "4000000000000", "4000000000000.000001", "40000000000000"}
	durations := []string{"0s", "1s", "999ms", "1000ms", "1.5s", "0.5h", "90m", "1h30m0s", "-1s", "0", "", "1", "week", "8760h", "8760h0m1s", "87600h", "87600h0m1s", "1s1ns", "1s0.001ms", "0.001h", "0.0005h", "9999999h"}
	for _, amount := range amounts {
		if amount != "" && amount != "-0" { // the API has one way to write none
			compare(t, crd, `overdraftLimit: %q`, amount)
		}
		compare(t, crd, `spending: {credits: %q, period: Month}`, amount)
		compare(t, crd, `refill: {credits: %q, period: 168h, cap: "4000000000000"}`, amount)
		compare(t, crd, `refill: {credits: "0.000001", period: 168h, cap: %q}`, amount)
		compare(t, crd, `refill: {credits: "3999999999999.999999", period: 168h, cap: %q}`, amount)
	}
	for _, ends := range []string{"10000", "9999.999999", "10009.999999", "10010", "10010.000001", "10", "9.999999"} {
		compare(t, crd, `refill: {credits: "10", period: 168h, cap: %q}`, ends)
	}
	for _, duration := range durations {
		if bound, err := time.ParseDuration(duration); err != nil || bound >= time.Second && bound <= 8760*time.Hour { // as for a pod's own bound
			compare(t, crd, `defaultMaxRuntime: %q`, duration)
		}
		compare(t, crd, `overrun: {lead: %q}`, duration)
		compare(t, crd, `overrun: {action: Stop, step: %q}`, duration)
		compare(t, crd, `overrun: {action: Renew, step: %q}`, duration)
		compare(t, crd, `refill: {credits: "1", period: %q, cap: "5"}`, duration)
	}
	for _, word := range []string{"Own", "Ancestor", "Stop", "Renew", "Overdraft", "Submission", "Admission", "Placement", "Day", "Week", "Month", "Quarter", "Year", "day", "Decade"} {
		compare(t, crd, `funding: %s`, word)
		compare(t, crd, `holdAt: %s`, word)
		compare(t, crd, `overrun: {action: %s, step: 1h}`, word)
		compare(t, crd, `overrun: {action: %s}`, word)
		compare(t, crd, `spending: {credits: "1", period: %s}`, word)
	}
	for _, n := range []string{"-1", "1", "100", "101", "99999", "100000", "100001", "10000000000000", "10000000000001"} {
		compare(t, crd, `runningJobs: %s`, n)
		compare(t, crd, `refunds: {failedPercent: %s}`, n)
		compare(t, crd, `refunds: {preemptedPercent: %s, preemptedSinceCheckpoint: true}`, n)
		compare(t, crd, `gpus: [{class: h100, guaranteed: %s}]`, n)
		compare(t, crd, `gpus: [{class: h100, guaranteed: 0, borrowable: %s}]`, n)
	}
	for _, classes := range []string{"", "h100", "h100 a100", "h100 h100", "a.b-c", strings.Repeat("x", 63)} {
		var limits []string
		for _, class := range strings.Fields(classes) {
			limits = append(limits, fmt.Sprintf("{class: %s, guaranteed: 8, borrowable: 4}", class))
		}
		compare(t, crd, `gpus: [%s]`, strings.Join(limits, ", "))
	}
	// As many classes as the API takes, with the longest names and the highest numbers, fit the ledger's text.
	var limits []string
	for i := range 50 {
		limits = append(limits, fmt.Sprintf("{class: %s%02d, guaranteed: 100000, borrowable: 100000}", strings.Repeat("x", 61), i))
	}
	compare(t, crd, `gpus: [%s]`, strings.Join(limits, ", "))
	if _, problems := crd.create(t, `spec: {policy: {gpus: [`+strings.Join(limits, ", ")+`]}}`); len(problems) > 0 {
		t.Errorf("50 classes: %v", problems)
	}
	for _, parent := range []string{"lab", "a.b", "Lab", "lab-", "system:revenue", "", "lab team"} {
		compareObject(t, crd, &v1alpha1.CreditAccount{}, fmt.Sprintf(`spec: {parent: %q}`, parent))
	}
}

// Narrower on purpose, because the ledger's own way of saying "none" would surprise whoever writes it as a number, or
// because a name could not be one of Kubernetes.
func TestPolicyIsRefusedByTheAPIAlone(t *testing.T) {
	t.Parallel()
	crd := define(t, "gpubank.io_creditaccounts.yaml")
	for policy, says := range map[string]string{
		`runningJobs: 0`:                                                     "greater than or equal to 1",
		`gpus: [{class: H100, guaranteed: 1}]`:                               "class must be the name of a GPUClass",
		`holdAt: Never`:                                                      `supported values: "Submission", "Admission", "Placement"`,
		`defaultMaxRuntime: 8761h`:                                           "whole seconds from 1s to 8760h, such as 24h",
		`spending: {credits: "0", period: Day}`:                              "spending.credits must be more than 0",
		`spending: {credits: "5"}`:                                           "spec.policy.spending.period: Required value",
		`overrun: {action: Renew}`:                                           "needs overrun.step",
		`overrun: {lead: soon}`:                                              "overrun.lead must be whole seconds",
		`refill: {credits: "5", period: 1h, cap: "4"}`:                       "refill.cap must be at least refill.credits",
		`refill: {credits: "1", period: 1h, cap: "1001"}`:                    "refill.cap must be at most 1000 times refill.credits",
		`gpus: [{class: h100, guaranteed: 1}, {class: h100, guaranteed: 2}]`: "Duplicate value",

		`fairShare: {weight: 0}`:                                     "greater than or equal to 1",
		`fairShare: {halfLife: 30s}`:                                 "fairShare.halfLife must be whole seconds from 1m to 8760h",
		`fairShare: {aging: 1500ms}`:                                 "fairShare.aging must be whole seconds",
		`fairShare: {maxWait: -1h}`:                                  "spec.policy.fairShare.maxWait",
		`fairShare: {floors: [{name: Serve, class: h100, gpus: 1}]}`: "spec.policy.fairShare.floors[0].name",
		`fairShare: {floors: [{name: s, class: h100, gpus: 0}]}`:     "greater than or equal to 1",
		`fairShare: {floors: [{name: s, class: h100, gpus: 1}, {name: s, class: h100, gpus: 2}]}`: "Duplicate value",
	} {
		_, problems := crd.create(t, `spec: {policy: {`+policy+`}}`)
		if len(problems) == 0 || !strings.Contains(problems.ToAggregate().Error(), says) {
			t.Errorf("%s: want a problem that says %q, got %v", policy, says, problems)
		}
	}
}

// Whoever reads an account sees what holds, also where nobody wrote it; and none of it makes another policy.
func TestDefaultsAreWrittenOut(t *testing.T) {
	t.Parallel()
	crd := define(t, "gpubank.io_creditaccounts.yaml")
	stored, problems := crd.create(t, `{}`)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	for _, part := range []string{`"funding":"Own"`, `"holdAt":"Submission"`, `"overrun":{"action":"Stop"}`, `"fairShare":{"weight":1}`} {
		if !strings.Contains(string(stored), part) {
			t.Errorf("%s is missing from %s", part, stored)
		}
	}
	var account v1alpha1.CreditAccount
	if err := json.Unmarshal(stored, &account); err != nil {
		t.Fatal(err)
	}
	if policy, err := policyOf(account.Spec.Policy); err != nil || policy != (ledger.Policy{}) {
		t.Errorf("the policy of an account that says nothing: %+v, %v", policy, err)
	}
}

func TestMovementsAreTakenByBothOrNeither(t *testing.T) {
	t.Parallel()
	grants, transfers, adjustments := define(t, "gpubank.io_creditgrants.yaml"), define(t, "gpubank.io_credittransfers.yaml"), define(t, "gpubank.io_creditadjustments.yaml")
	for _, amount := range []string{"", "0", "-0.0", "0.000001", "-0.000001", "-1", "5", "1e3", "4000000000000", "-4000000000000", "4000000000000.1", "-4000000000000.000001"} {
		compareObject(t, grants, &v1alpha1.CreditGrant{}, fmt.Sprintf(`spec: {account: a, credits: %q, reason: r}`, amount))
		compareObject(t, transfers, &v1alpha1.CreditTransfer{}, fmt.Sprintf(`spec: {from: a, to: b, credits: %q, reason: r}`, amount))
		for _, more := range []string{"", ", discrepancy: k", ", corrects: 7", ", corrects: 7, discrepancy: k", `, discrepancy: ""`, ", corrects: -1"} {
			compareObject(t, adjustments, &v1alpha1.CreditAdjustment{}, fmt.Sprintf(`spec: {account: a, credits: %q, reason: r%s}`, amount, more))
		}
	}
	for _, name := range []string{"", "a", "A", "a b", "a.b", "a..b", "-a", "system:issuance", strings.Repeat("x", 253), strings.Repeat("x", 254)} {
		compareObject(t, grants, &v1alpha1.CreditGrant{}, fmt.Sprintf(`spec: {account: %q, credits: "5", reason: r}`, name))
		compareObject(t, transfers, &v1alpha1.CreditTransfer{}, fmt.Sprintf(`spec: {from: %q, to: a, credits: "5", reason: r}`, name))
		compareObject(t, transfers, &v1alpha1.CreditTransfer{}, fmt.Sprintf(`spec: {from: a, to: %q, credits: "5", reason: r}`, name))
		compareObject(t, adjustments, &v1alpha1.CreditAdjustment{}, fmt.Sprintf(`spec: {account: %q, credits: "5", reason: r}`, name))
	}
	for _, reason := range []string{"r", `\0`, `a\0b`, "größer", strings.Repeat("漢", 512)} {
		compareObject(t, grants, &v1alpha1.CreditGrant{}, `spec: {account: a, credits: "5", reason: "`+reason+`"}`)
		compareObject(t, transfers, &v1alpha1.CreditTransfer{}, `spec: {from: a, to: b, credits: "5", reason: "`+reason+`"}`)
		compareObject(t, adjustments, &v1alpha1.CreditAdjustment{}, `spec: {account: a, credits: "5", reason: "`+reason+`"}`)
		compareObject(t, adjustments, &v1alpha1.CreditAdjustment{}, `spec: {account: a, credits: "5", reason: r, discrepancy: "`+reason+`"}`)
	}
	for _, expiry := range []string{
		"2027-04-01T00:00:00Z", "2027-04-01T00:00:00.123456789Z", "2027-04-01T00:00:00+05:30", "2027-04-01", "2027-04-01T00:00:00", "2027-04-01 00:00:00Z",
		"2027-04-01t00:00:00z", "2027-02-30T00:00:00Z", "2027-13-01T00:00:00Z", "2027-04-01T24:00:00Z", "2027-04-01T23:59:60Z", "2027-04-01T00:00:00+25:00",
		"1999-12-31T23:59:59Z", "2000-01-01T00:00:00Z", "2199-12-31T23:59:59.999999Z", "2200-01-01T00:00:00Z", "2200-01-01T00:00:00+01:00", "0000-01-01T00:00:00Z", "soon", "",
	} {
		compareObject(t, grants, &v1alpha1.CreditGrant{}, fmt.Sprintf(`spec: {account: a, credits: "5", reason: r, expiresAt: %q}`, expiry))
	}
}

func compare(t *testing.T, crd definition, format, value string) {
	t.Helper()
	compareObject(t, crd, &v1alpha1.CreditAccount{}, `spec: {policy: {`+fmt.Sprintf(format, value)+`}}`)
}

// compareObject has an object judged by the API server's code and by the ledger's.
func compareObject(t *testing.T, crd definition, object client.Object, content string) {
	t.Helper()
	stored, problems := crd.create(t, content)
	err := takenByLedger(stored, object)
	if (len(problems) == 0) != (err == nil) {
		t.Errorf("%s\n  API server: %v\n  ledger: %v", content, problems.ToAggregate(), err)
	}
}

func takenByLedger(stored []byte, object client.Object) error {
	if err := json.Unmarshal(stored, object); err != nil {
		return err
	}
	var command ledger.Command
	var err error
	if account, ok := object.(*v1alpha1.CreditAccount); ok {
		command, err = setAccount(account, "key")
	} else {
		wanted := readPosting(object)
		command, err = wanted.command, wanted.problem
	}
	if err != nil {
		return err
	}
	if refusal := ledger.Check(command); refusal != nil {
		return refusal
	}
	return nil
}

// What the README shows can be written.
func TestREADMEIsTaken(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]struct {
		crd    definition
		object client.Object
	}{
		"CreditAccount":    {define(t, "gpubank.io_creditaccounts.yaml"), &v1alpha1.CreditAccount{}},
		"CreditGrant":      {define(t, "gpubank.io_creditgrants.yaml"), &v1alpha1.CreditGrant{}},
		"CreditTransfer":   {define(t, "gpubank.io_credittransfers.yaml"), &v1alpha1.CreditTransfer{}},
		"CreditAdjustment": {define(t, "gpubank.io_creditadjustments.yaml"), &v1alpha1.CreditAdjustment{}},
	}
	shown := map[string]bool{}
	for _, block := range strings.Split(string(text), "```yaml\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		for _, document := range strings.Split(block, "---\n") {
			_, after, _ := strings.Cut(document, "kind: ")
			name := strings.Fields(after)[0]
			kind, ours := kinds[name]
			if !ours {
				continue
			}
			shown[name] = true
			if err := yaml.UnmarshalStrict([]byte(document), kind.object.DeepCopyObject()); err != nil { // a field of another name
				t.Errorf("%s\n  %v", document, err)
			}
			stored, problems := kind.crd.create(t, document)
			if err := takenByLedger(stored, kind.object); err != nil || len(problems) > 0 {
				t.Errorf("%s\n  API server: %v\n  ledger: %v", document, problems.ToAggregate(), err)
			}
		}
	}
	if len(shown) != len(kinds) {
		t.Errorf("the README shows only %v", shown)
	}
}
