package webhook

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/workload"
)

// Ledger is what admission asks of the ledger. An error means that no answer came; a refusal is in the verdict.
type Ledger interface {
	// Submit returns once the command's outcome is durable.
	Submit(ctx context.Context, cmd ledger.Command) (ledger.Verdict, error)
	// Quote decides like Submit and writes nothing.
	Quote(ctx context.Context, cmd ledger.PlaceHold) (ledger.Verdict, error)
	Reservation(ctx context.Context, uid string) (ledger.Reservation, bool, error)
	Account(ctx context.Context, name string) (ledger.Account, bool, error)
}

// gatherer reads facts: from the cache, and live when what the cache lacks would mean a denial, because an account or class may have
// been created a moment ago. What it returns may be the cache's own (see CacheOptions): nobody changes it.
type gatherer struct {
	cached, live client.Reader
	ledger       Ledger
}

// clusterError is a failure to read the API server; ledgerError one to reach the ledger.
type (
	clusterError struct{ error }
	ledgerError  struct{ error }
)

func (e clusterError) Unwrap() error { return e.error }
func (e ledgerError) Unwrap() error  { return e.error }

// facts gathers what every decision about a workload needs.
func (g *gatherer) facts(ctx context.Context, namespace, user string, template podTemplate) (Facts, error) {
	facts := Facts{Namespace: namespace, User: user}
	var err error
	if facts.AccountName, facts.Enrolled, err = g.enrolment(ctx, namespace); err != nil || !facts.Enrolled {
		return facts, err
	}
	if facts.Account, err = g.account(ctx, facts.AccountName, namespace); err != nil {
		return facts, err
	}
	facts.Classes, err = g.classes(ctx, template)
	return facts, err
}

// podTemplate is the part of a workload that its classes are looked up for.
type podTemplate struct {
	spec   *corev1.PodSpec
	labels map[string]string
}

func (g *gatherer) enrolment(ctx context.Context, namespace string) (account string, enrolled bool, err error) {
	for _, reader := range []client.Reader{g.cached, g.live} {
		object := &metav1.PartialObjectMetadata{} // a new one each: what the cache filled is the cache's
		object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
		err := reader.Get(ctx, client.ObjectKey{Name: namespace}, object)
		if err != nil && !apierrors.IsNotFound(err) {
			return "", false, clusterError{fmt.Errorf("read namespace %s: %w", namespace, err)}
		}
		if account, enrolled = object.Labels[v1alpha1.AccountLabel]; err == nil && enrolled {
			return account, true, nil
		}
	}
	return "", false, nil
}

// account returns the account, or nil when there is none.
func (g *gatherer) account(ctx context.Context, name, namespace string) (*v1alpha1.CreditAccount, error) {
	var found *v1alpha1.CreditAccount
	for _, reader := range []client.Reader{g.cached, g.live} {
		account := &v1alpha1.CreditAccount{}
		err := reader.Get(ctx, client.ObjectKey{Name: name}, account)
		// An empty or malformed name is no account's.
		if apierrors.IsNotFound(err) || apierrors.IsInvalid(err) || name == "" {
			found = nil
			continue
		}
		if err != nil {
			return nil, clusterError{fmt.Errorf("read CreditAccount %s: %w", name, err)}
		}
		found = account
		if slices.Contains(account.Spec.Namespaces, namespace) {
			break
		}
	}
	return found, nil
}

// classes returns all classes, read live if the cached ones cannot tell the demand.
func (g *gatherer) classes(ctx context.Context, template podTemplate) ([]v1alpha1.GPUClass, error) {
	var list v1alpha1.GPUClassList
	for _, reader := range []client.Reader{g.cached, g.live} {
		list = v1alpha1.GPUClassList{}
		if err := reader.List(ctx, &list); err != nil {
			return nil, clusterError{fmt.Errorf("list GPUClasses: %w", err)}
		}
		var demandError *workload.DemandError
		_, err := workload.DemandOf(template.spec, template.labels, list.Items)
		if !errors.As(err, &demandError) || !classCouldHelp(demandError.Code) {
			break
		}
	}
	return list.Items, nil
}

func classCouldHelp(code workload.DemandCode) bool {
	return code == workload.UnknownResource || code == workload.UnknownClass || code == workload.ClassMismatch || code == workload.AmbiguousClass
}

// reservation returns the workload's reservation, or nil when it has none.
func (g *gatherer) reservation(ctx context.Context, uid string) (*ledger.Reservation, error) {
	reservation, found, err := g.ledger.Reservation(ctx, uid)
	if err != nil {
		return nil, ledgerError{fmt.Errorf("read reservation %s: %w", uid, err)}
	}
	if !found {
		return nil, nil
	}
	return &reservation, nil
}

// children returns the names of the accounts directly below name.
func (g *gatherer) children(ctx context.Context, name string) ([]string, error) {
	var accounts v1alpha1.CreditAccountList
	if err := g.live.List(ctx, &accounts); err != nil {
		return nil, clusterError{fmt.Errorf("list CreditAccounts: %w", err)}
	}
	var names []string
	for i := range accounts.Items {
		if accounts.Items[i].Spec.Parent == name {
			names = append(names, accounts.Items[i].Name)
		}
	}
	return names, nil
}
