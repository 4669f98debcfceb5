package webhook

import (
	"context"
	"encoding/json"
	"fmt"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// Quote is what would become of a workload that is created now.
type Quote struct {
	// Decision is admission's answer. Its Message is set when it is no.
	Decision Decision
	// AccountName is who is named to pay for the namespace; empty when it is not enrolled.
	AccountName string
	// Hold is what would be set aside, for the workload or, where pods bring their holds, for each of its pods (Hold.Subject).
	// Nil when the workload was refused before it came to that, or costs nothing.
	Hold *Hold
	// Cost is the price of Hold, the most that the workload may be charged.
	Cost ledger.Microcredits
	// Refusal is the ledger's no; nil when it was not asked, or has none. A workload whose pods bring their holds may be
	// admitted all the same, to wait.
	Refusal *ledger.Refusal
	// Warnings are what its creator would be told.
	Warnings []string
}

// Quoter is what a quote asks of the ledger.
type Quoter interface {
	// Quote decides a hold as it would be decided now, and writes nothing.
	Quote(ctx context.Context, cmd ledger.PlaceHold) (ledger.Verdict, error)
	Account(ctx context.Context, name string) (ledger.Account, bool, error)
}

// QuoteWorkload answers for a Job or Pod, which has a name and a UID as the API server gives them, what the two admission
// steps would: the workload is changed by the first and decided by the second. It reads the cluster and changes nothing.
func QuoteWorkload(ctx context.Context, cluster client.Reader, quoter Quoter, namespace string, object client.Object) (Quote, error) {
	g := gatherer{cached: cluster, live: cluster}
	facts, err := g.facts(ctx, namespace, "", templateOf(object))
	if err != nil {
		return Quote{}, err
	}
	quote := Quote{AccountName: facts.AccountName}
	switch object := object.(type) {
	case *batchv1.Job:
		err = quote.decide(MutateJob(facts, object), object, func() Decision { return DecideJob(facts, object) })
	case *corev1.Pod:
		err = quote.decide(MutatePod(facts, object), object, func() Decision { return DecidePod(facts, object) })
	}
	if err == nil && quote.Hold != nil {
		err = quote.ask(ctx, quoter, facts, object)
	}
	return quote, err
}

// ask completes a quote by what the ledger says, as the validating step does on a dry run.
func (q *Quote) ask(ctx context.Context, quoter Quoter, facts Facts, object client.Object) error {
	account, _, err := quoter.Account(ctx, facts.AccountName)
	if err != nil {
		return ledgerError{fmt.Errorf("read account %s: %w", facts.AccountName, err)}
	}
	var verdict ledger.Verdict
	q.Decision = Later(account.Policy.HoldAt, facts, object, q.Decision)
	if q.Hold = q.Decision.Hold; q.Hold == nil {
		return nil
	}
	if q.Hold.Later != "" {
		answer, err := askForLater(ctx, quoter, q.Hold, false)
		if err != nil {
			return err
		}
		q.Decision, verdict = answer.decision, answer.verdict
		q.Warnings = append(q.Warnings, answer.warnings...)
	} else {
		if verdict, err = quoter.Quote(ctx, q.Hold.Command); err != nil {
			return ledgerError{fmt.Errorf("quote a hold of %d GPU-seconds: %w", q.Hold.Command.GPUSeconds, err)}
		}
		q.Decision = allow(Held)
		if verdict.Refusal != nil {
			q.Decision = deny(Code(verdict.Refusal.Code), "%s", explainRefusal(verdict.Refusal, q.Hold))
		}
	}
	if q.Refusal = verdict.Refusal; q.Refusal != nil || verdict.Reservation == nil {
		q.Cost = costBy(facts, q.Hold)
	} else {
		q.Cost = verdict.Reservation.Amount
	}
	return nil
}

// laterAnswer is what becomes of a workload that is held later.
type laterAnswer struct {
	decision Decision
	warnings []string
	verdict  ledger.Verdict // on that hold
}

// askForLater asks what the ledger would say now to a hold that is placed later.
func askForLater(ctx context.Context, quoter Quoter, hold *Hold, dryRun bool) (laterAnswer, error) {
	verdict, err := quoter.Quote(ctx, hold.Command)
	if err != nil {
		return laterAnswer{}, ledgerError{fmt.Errorf("quote hold %s: %w", hold.Command.UID, err)}
	}
	var limit tightest
	if verdict.Refusal != nil {
		if limit, err = tightestAbove(ctx, quoter, hold.Command.Account); err != nil {
			return laterAnswer{}, err
		}
	}
	decision, warnings := DecideLater(hold, verdict, limit, dryRun)
	return laterAnswer{decision: decision, warnings: warnings, verdict: verdict}, nil
}

// decide changes the object as the mutating step does, and then decides.
func (q *Quote) decide(mutation Mutation, object client.Object, decide func() Decision) error {
	if err := applyMutation(mutation, object); err != nil {
		return err
	}
	q.Decision = decide()
	q.Hold = q.Decision.Hold
	q.Warnings = mutation.Warnings
	return nil
}

// applyMutation changes an object as the API server does with the patch.
func applyMutation(mutation Mutation, object client.Object) error {
	if len(mutation.Patch) == 0 {
		return nil
	}
	operations, err := json.Marshal(mutation.Patch)
	if err != nil {
		return fmt.Errorf("write the mutating step's patch: %w", err)
	}
	patch, err := jsonpatch.DecodePatch(operations)
	if err != nil {
		return fmt.Errorf("read the mutating step's patch: %w", err)
	}
	before, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("write the workload as JSON: %w", err)
	}
	after, err := patch.Apply(before)
	if err != nil {
		return fmt.Errorf("change the workload as the mutating step does: %w", err)
	}
	if err := json.Unmarshal(after, object); err != nil {
		return fmt.Errorf("read the changed workload: %w", err)
	}
	return nil
}

// costBy is the price by the class's own figure, for a hold that the ledger has not priced; 0 when it cannot be told.
func costBy(facts Facts, hold *Hold) ledger.Microcredits {
	for i := range facts.Classes {
		if facts.Classes[i].Name != hold.Demand.Class {
			continue
		}
		rate, err := ledger.ParseCredits(string(facts.Classes[i].Spec.CreditsPerGPUSecond))
		if err != nil {
			return 0
		}
		if price, err := ledger.HoldPrice(ledger.Rate(rate), hold.Terms.GPUSeconds); err == nil {
			return price
		}
	}
	return 0
}

// tightestAbove reads the least spending limit of an account and those above it.
func tightestAbove(ctx context.Context, quoter Quoter, account string) (tightest, error) {
	var least tightest
	for name := account; name != ""; {
		row, _, err := quoter.Account(ctx, name)
		if err != nil {
			return tightest{}, ledgerError{fmt.Errorf("read account %s: %w", name, err)}
		}
		if amount := row.Policy.Spending.Amount; amount > 0 && (least.account == "" || amount < least.spending.Amount) {
			least = tightest{account: name, spending: row.Policy.Spending}
		}
		name = row.Parent
	}
	return least, nil
}
