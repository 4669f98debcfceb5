package auditor

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
)

const (
	// sealTimeout bounds one step of sealing, which takes well below a second.
	sealTimeout = 30 * time.Second
	// auditTimeout bounds reading every entry twice; ten million take a few minutes.
	auditTimeout = time.Hour
	// compareTimeout bounds reading what is open; ten thousand allocations take below a second.
	compareTimeout = 30 * time.Second
	// firstAuditMost is how soon after the start the first audit begins, whatever the interval: a new leader may follow one that
	// did not get there.
	firstAuditMost = 10 * time.Minute
	// leftBehind is how old an entry may be without a seal before every account is looked at again.
	leftBehind = 10 * time.Minute
	// freezesAtOnce is how many commands one commit takes from here, so that a ledger in ruins does not keep others waiting.
	freezesAtOnce = 100
)

// Ledger is what the package needs of the store.
type Ledger interface {
	// Seal seals some of the entries that are not sealed yet; to be called again while it says More.
	Seal(ctx context.Context) (ledger.SealResult, error)
	// SealAfresh has Seal look at every account again.
	SealAfresh(ctx context.Context) error
	// UnsealedEntries counts what Seal has yet to come to.
	UnsealedEntries(ctx context.Context) (int64, error)
	// VerifyChains compares all sealed entries with their seals.
	VerifyChains(ctx context.Context, pins []ledger.ChainHead) (ledger.ChainReport, error)
	// Audit checks every invariant.
	Audit(ctx context.Context) ([]ledger.Violation, error)
	// SubmitAll decides commands in order; an error means that there is no answer.
	SubmitAll(ctx context.Context, commands []ledger.Command) ([]ledger.Verdict, error)
	// FrozenAccounts returns the accounts that are frozen.
	FrozenAccounts(ctx context.Context) ([]ledger.Account, error)
	// MeteredAllocations returns the open allocations with what was metered of them, oldest first.
	MeteredAllocations(ctx context.Context) ([]ledger.MeteredAllocation, error)
	// Allocation returns a pod's row and whether there is one.
	Allocation(ctx context.Context, podUID string) (ledger.Allocation, bool, error)
	// KeepDiscrepancies keeps each disagreement once and returns how many are new.
	KeepDiscrepancies(ctx context.Context, found []ledger.Discrepancy) (int64, error)
	// OpenDiscrepancies counts those that nobody has closed.
	OpenDiscrepancies(ctx context.Context) (map[ledger.DiscrepancyKind]int64, error)
}

// Options configure an Auditor. Every field is required.
type Options struct {
	Ledger   Ledger
	Client   client.Reader
	Recorder events.EventRecorder
	// SealInterval is how often new entries are sealed: for so long can an entry be changed without the chain telling.
	SealInterval time.Duration
	// AuditInterval is how often everything is verified, give or take a tenth, so that many ledgers on one server do not do
	// it at once.
	AuditInterval time.Duration
	// CompareInterval is how often the sides are compared, SettleTime how long they must disagree for it to be kept.
	CompareInterval, SettleTime time.Duration
	Clock                       clock.Clock
	// Random spreads audits; seeded by the caller.
	Random   *rand.Rand
	Logger   logr.Logger
	Registry prometheus.Registerer
}

// Auditor watches the ledger. It implements manager.Runnable and runs on the leader.
type Auditor struct {
	options Options
	metrics *metrics
	// since is when each present disagreement was first found; the comparison's own.
	since map[string]time.Time
}

// New returns an auditor and registers its metrics.
func New(options Options) *Auditor {
	return &Auditor{options: options, metrics: newMetrics(options.Registry), since: map[string]time.Time{}}
}

// NeedLeaderElection is true: one is enough, though more would do no harm.
func (a *Auditor) NeedLeaderElection() bool { return true }

// Start watches until ctx ends.
func (a *Auditor) Start(ctx context.Context) error {
	var tasks sync.WaitGroup
	random := a.options.Random
	audits := func() time.Duration {
		tenth := a.options.AuditInterval / 10
		return a.options.AuditInterval - tenth + time.Duration(random.Int64N(int64(2*tenth)+1))
	}
	first := time.Duration(random.Int64N(int64(min(firstAuditMost, a.options.AuditInterval)) + 1))
	every := func(name string, first time.Duration, next func() time.Duration, do func(context.Context) error) {
		tasks.Go(func() { a.repeat(ctx, name, first, next, do) })
	}
	fixed := func(interval time.Duration) func() time.Duration { return func() time.Duration { return interval } }
	for _, task := range []string{sealing, auditing, comparing} { // what never succeeds grows old from here
		a.metrics.succeeded(task, a.options.Clock.Now())
	}
	afresh := true
	every(sealing, 0, fixed(a.options.SealInterval), func(ctx context.Context) error {
		if afresh { // whoever led before may have left something behind
			if err := a.options.Ledger.SealAfresh(ctx); err != nil {
				return err
			}
			afresh = false
		}
		return a.seal(ctx)
	})
	every(auditing, first, audits, a.audit)
	every(comparing, a.options.CompareInterval, fixed(a.options.CompareInterval), a.compare)
	tasks.Wait()
	return nil
}

// repeat does a task now and again, and logs a failure when it begins and when it ends.
func (a *Auditor) repeat(ctx context.Context, name string, wait time.Duration, next func() time.Duration, do func(context.Context) error) {
	logger := a.options.Logger.WithValues("task", name)
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.options.Clock.After(wait):
		}
		err := do(ctx)
		switch {
		case err == nil:
			a.metrics.succeeded(name, a.options.Clock.Now())
			if failing {
				logger.Info("Watching the ledger works again")
			}
		case ctx.Err() == nil && !failing:
			logger.Error(err, "Watching the ledger failed; trying again")
		}
		failing = err != nil
		wait = next()
	}
}

// seal seals what there is.
func (a *Auditor) seal(ctx context.Context) error {
	for more := true; more; {
		step, cancel := context.WithTimeout(ctx, sealTimeout)
		result, err := a.options.Ledger.Seal(step)
		cancel()
		if err != nil {
			return err
		}
		a.metrics.sealed.Add(float64(result.Entries))
		more = result.More
	}
	waiting, err := a.options.Ledger.UnsealedEntries(ctx)
	if err != nil {
		return err
	}
	a.metrics.unsealed.Set(float64(waiting))
	return nil
}

// audit verifies the chains and every invariant, and freezes the accounts that are concerned.
func (a *Auditor) audit(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, auditTimeout)
	defer cancel()
	began := a.options.Clock.Now()
	chains, err := a.options.Ledger.VerifyChains(ctx, nil)
	if err != nil {
		return err
	}
	violations, err := a.options.Ledger.Audit(ctx)
	if err != nil {
		return err
	}
	violations = append(chains.Violations, violations...)
	if chains.Unsealed > 0 && began.Sub(chains.UnsealedSince) > leftBehind {
		if err := a.options.Ledger.SealAfresh(ctx); err != nil {
			return err
		}
	}
	a.metrics.showViolations(violations)
	for _, v := range violations {
		a.options.Logger.Error(nil, "Ledger is not sound", "invariant", v.Invariant, "subject", v.Subject, "detail", v.Detail, "accounts", v.Accounts, "entry", v.Entry)
	}
	if err := a.freeze(ctx, findings(violations)); err != nil {
		return err
	}
	frozen, err := a.options.Ledger.FrozenAccounts(ctx)
	if err != nil {
		return err
	}
	a.metrics.frozen.Set(float64(len(frozen)))
	a.options.Logger.V(1).Info("Ledger was audited", "sealed", chains.Sealed, "unsealed", chains.Unsealed, "violations", len(violations), "frozen", len(frozen))
	return nil
}

// freeze freezes accounts, and tells those who watch them. What the ledger remembers is left as a person decided since; the event is
// repeated for as long as the violation lasts.
func (a *Auditor) freeze(ctx context.Context, found []finding) error {
	told := make(map[string]bool)
	for len(found) > 0 {
		batch := found[:min(len(found), freezesAtOnce)]
		found = found[len(batch):]
		commands := make([]ledger.Command, len(batch))
		for i, f := range batch {
			commands[i] = f.command
		}
		verdicts, err := a.options.Ledger.SubmitAll(ctx, commands)
		if err != nil {
			return fmt.Errorf("freeze account %s and %d others: %w", batch[0].account, len(batch)-1, err)
		}
		for i, f := range batch {
			if refusal := verdicts[i].Refusal; refusal != nil && refusal.Code != ledger.KeyReused && refusal.Code != ledger.UnknownAccount {
				return fmt.Errorf("freeze account %s: %w", f.account, refusal)
			}
			if !told[f.account] {
				told[f.account] = true
				a.tell(ctx, f)
			}
		}
	}
	return nil
}

// tell puts an event on the account's object, if it has one.
func (a *Auditor) tell(ctx context.Context, f finding) {
	account := &v1alpha1.CreditAccount{}
	if err := a.options.Client.Get(ctx, client.ObjectKey{Name: f.account}, account); err != nil {
		a.options.Logger.V(1).Info("Account has no object to put an event on", "account", f.account, "reason", err.Error())
		account = &v1alpha1.CreditAccount{ObjectMeta: metav1.ObjectMeta{Name: f.account}}
	}
	a.options.Recorder.Eventf(account, nil, corev1.EventTypeWarning, "AuditMismatch", "Audit", "%s", f.reason)
}

// compare compares the sides and keeps what they have disagreed about for long enough.
func (a *Auditor) compare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, compareTimeout)
	defer cancel()
	said, err := a.gather(ctx)
	if err != nil {
		return err
	}
	keep, since := settle(a.since, compare(said), a.options.Clock.Now(), a.options.SettleTime)
	a.since = since
	added, err := a.options.Ledger.KeepDiscrepancies(ctx, keep)
	if err != nil {
		return err
	}
	if added > 0 {
		a.options.Logger.Info("Sides disagree; kubectl credit discrepancies shows both", "new", added, "present", len(keep))
	}
	open, err := a.options.Ledger.OpenDiscrepancies(ctx)
	if err != nil {
		return err
	}
	a.metrics.showDiscrepancies(open)
	return nil
}
