package accounts

import (
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
)

// PostingKind is a kind of object that the ledger is told once.
type PostingKind struct {
	name   string // of the controller
	object func() client.Object
	list   func() client.ObjectList
}

// PostingKinds lists them: each of their objects is one command under its own UID and nothing else, so that it moves money
// once (L12), whatever restarts.
var PostingKinds = []PostingKind{
	{"creditgrant", func() client.Object { return &v1alpha1.CreditGrant{} }, func() client.ObjectList { return &v1alpha1.CreditGrantList{} }},
	{"credittransfer", func() client.Object { return &v1alpha1.CreditTransfer{} }, func() client.ObjectList { return &v1alpha1.CreditTransferList{} }},
	{"creditadjustment", func() client.Object { return &v1alpha1.CreditAdjustment{} }, func() client.ObjectList { return &v1alpha1.CreditAdjustmentList{} }},
}

// posting is what an object of such a kind asks for, and what people are told of it.
type posting struct {
	kind   string // as users write it
	status *v1alpha1.PostingStatus
	// accounts are those whose money it concerns, all of which the ledger has to know.
	accounts []string
	command  ledger.Command
	// problem is why there is no command.
	problem error
	// done says what was posted; event and note what readers of the accounts are told.
	done, event, note string
}

// readPosting reads an object of one of PostingKinds.
func readPosting(object client.Object) posting {
	switch o := object.(type) {
	case *v1alpha1.CreditGrant:
		return readGrant(o)
	case *v1alpha1.CreditTransfer:
		return readTransfer(o)
	case *v1alpha1.CreditAdjustment:
		return readAdjustment(o)
	}
	panic(fmt.Sprintf("accounts: %T is not posted", object))
}

func readGrant(grant *v1alpha1.CreditGrant) posting {
	amount, err := readCredits(grant.Spec.Credits)
	command := ledger.PostGrant{
		Key: "grant:" + string(grant.UID), Account: grant.Spec.Account, Amount: amount, Reason: grant.Spec.Reason,
		// The object, since the API server does not say who created it.
		Actor: "CreditGrant/" + grant.Name,
	}
	if grant.Spec.ExpiresAt != nil {
		command.ExpiresAt = grant.Spec.ExpiresAt.UTC()
	}
	credits := ledger.DisplayCredits(amount)
	return posting{
		kind: "CreditGrant", status: &grant.Status, accounts: []string{grant.Spec.Account}, command: command, problem: err,
		done:  fmt.Sprintf("the ledger has given %s credits to %s", credits, grant.Spec.Account),
		event: "Granted", note: fmt.Sprintf("%s credits granted by %s: %s", credits, grant.Name, grant.Spec.Reason),
	}
}

func readTransfer(transfer *v1alpha1.CreditTransfer) posting {
	spec := transfer.Spec
	amount, err := readCredits(spec.Credits)
	credits := ledger.DisplayCredits(amount)
	return posting{
		kind: "CreditTransfer", status: &transfer.Status, accounts: []string{spec.From, spec.To}, problem: err,
		command: ledger.Transfer{Key: "transfer:" + string(transfer.UID), From: spec.From, To: spec.To, Amount: amount, Reason: spec.Reason},
		done:    fmt.Sprintf("the ledger has moved %s credits from %s to %s", credits, spec.From, spec.To),
		event:   "Transferred", note: fmt.Sprintf("%s credits moved from %s to %s by %s: %s", credits, spec.From, spec.To, transfer.Name, spec.Reason),
	}
}

func readAdjustment(adjustment *v1alpha1.CreditAdjustment) posting {
	spec := adjustment.Spec
	amount, err := readCredits(spec.Credits)
	credits := ledger.DisplayCredits(amount)
	if amount > 0 {
		credits = "+" + credits
	}
	return posting{
		kind: "CreditAdjustment", status: &adjustment.Status, accounts: []string{spec.Account}, problem: err,
		command: ledger.Adjust{
			Key: "adjustment:" + string(adjustment.UID), Account: spec.Account, Amount: amount, Corrects: spec.Corrects,
			Discrepancy: spec.Discrepancy, Reason: spec.Reason,
		},
		done:  fmt.Sprintf("the ledger has adjusted %s by %s credits", spec.Account, credits),
		event: "Adjusted", note: fmt.Sprintf("adjusted by %s credits by %s: %s", credits, adjustment.Name, spec.Reason),
	}
}

func readCredits(text v1alpha1.Credits) (ledger.Microcredits, error) {
	amount, err := ledger.ParseCredits(string(text))
	if err != nil {
		return 0, fmt.Errorf("spec.credits: %w", err)
	}
	return amount, nil
}
