package v1alpha1_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// schema is the part of a CRD's schema that says which strings are taken.
type schema struct {
	Pattern    string            `json:"pattern"`
	MaxLength  int               `json:"maxLength"`
	Rules      []rule            `json:"x-kubernetes-validations"`
	Properties map[string]schema `json:"properties"`
}

type rule struct {
	Rule    string `json:"rule"`
	Message string `json:"message"`
}

// takes reports whether the API server stores text in the field. Of CEL rules it knows the two that credits have.
func (s schema) takes(t *testing.T, text string) bool {
	t.Helper()
	if s.Pattern == "" || s.MaxLength == 0 {
		t.Fatal("the field is missing from the CRD, or any text is taken there")
	}
	if len(text) > s.MaxLength || !regexp.MustCompile(s.Pattern).MatchString(text) {
		return false
	}
	for _, r := range s.Rules {
		for _, condition := range strings.Split(r.Rule, " && ") {
			if condition == "!self.startsWith('-')" {
				if strings.HasPrefix(text, "-") {
					return false
				}
				continue
			}
			pattern, begins := strings.CutPrefix(condition, "self.matches('")
			pattern, ends := strings.CutSuffix(pattern, "')")
			if !begins || !ends {
				t.Fatalf("this test does not know the rule %s", condition)
			}
			if !regexp.MustCompile(pattern).MatchString(text) {
				return false
			}
		}
	}
	return true
}

// field finds a field's schema in the manifest of a CRD.
func field(t *testing.T, manifest string, path ...string) schema {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "manifests", "crd", manifest))
	if err != nil {
		t.Fatal(err)
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema schema `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(text, &crd); err != nil || len(crd.Spec.Versions) != 1 {
		t.Fatalf("%s has %d versions, %v", manifest, len(crd.Spec.Versions), err)
	}
	found := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	for _, name := range path {
		found = found.Properties[name]
	}
	return found
}

// Every figure that the ledger may have of an account can be stored in its status, also the longest.
func TestStatusHoldsWhateverTheLedgerSays(t *testing.T) {
	t.Parallel()
	// The most and the least of each, and the longest to write, which has all decimals.
	most := []ledger.Account{
		{},
		{Balance: ledger.MaxAmount, Reserved: ledger.MaxAmount, Charged: ledger.MaxAmount},
		{Balance: ledger.MaxAmount - 1, Reserved: 1, Charged: ledger.MaxAmount - 1},
		{Balance: -ledger.MaxAmount, Reserved: ledger.MaxAmount},
		{Balance: 1 - ledger.MaxAmount, Reserved: ledger.MaxAmount},
		{Balance: -1},
	}
	for _, account := range most {
		for name, amount := range map[string]ledger.Microcredits{
			"available": account.Available(), "balance": account.Balance, "reserved": account.Reserved, "charged": account.Charged,
		} {
			text := ledger.FormatCredits(amount)
			if !field(t, "gpubank.io_creditaccounts.yaml", "status", name).takes(t, text) {
				t.Errorf("an account whose %s credits are %s has a status that cannot be written", name, text)
			}
		}
	}
}

// What a person may write into a grant or an overdraft limit is what the ledger takes: nobody creates an immutable
// grant that can never be posted.
func TestLedgerTakesWhateverIsWritten(t *testing.T) {
	t.Parallel()
	texts := []string{
		"", "0", "0.000000", "0.000001", "-1", "+1", "1.", ".5", "1e3", "1,000", " 1", "0.0000001", "12.345678", "0000000000012",
		"999999999999.999999", "1000000000000", "3999999999999.999999", "4000000000000", "4000000000000.000000", "-4000000000000",
		"4000000000000.000001", "4000000000000.1", "4000000000001", "4999999999999", "9999999999999.999999", "40000000000000",
	}
	for _, amount := range []ledger.Microcredits{1, ledger.Credit, ledger.MaxAmount - 1, ledger.MaxAmount} {
		texts = append(texts, ledger.FormatCredits(amount))
	}
	grant := field(t, "gpubank.io_creditgrants.yaml", "spec", "credits")
	overdraft := field(t, "gpubank.io_creditaccounts.yaml", "spec", "policy", "overdraftLimit")
	for _, text := range texts {
		amount, err := ledger.ParseCredits(text)
		if got, want := grant.takes(t, text), err == nil && amount > 0; got != want {
			t.Errorf("a grant of %q: the API server takes it: %v, the ledger: %v (%v)", text, got, want, err)
		}
		if got, want := overdraft.takes(t, text), err == nil && amount >= 0; got != want {
			t.Errorf("an overdraft limit of %q: the API server takes it: %v, the ledger: %v (%v)", text, got, want, err)
		}
	}
}
