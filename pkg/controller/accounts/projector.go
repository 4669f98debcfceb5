package accounts

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
)

// pollEvery is how old a shown balance may be. The scheduler's and people's view; nothing is decided by it.
const pollEvery = time.Second

// fullEvery is after how many rounds every account is read, not only those above the last revision seen: of two
// transactions that overlap, the one with the lower revision may commit last.
const fullEvery = 30

// pollTimeout bounds one read, so that a database that hangs does not stop the loop for good.
const pollTimeout = 10 * time.Second

// BalanceReader is what the projector needs of the store.
type BalanceReader interface {
	// AccountsSince returns the accounts whose Revision is above revision, ordered by Revision.
	AccountsSince(ctx context.Context, revision int64) ([]ledger.Account, error)
}

// Projector copies the ledger's balances into CreditAccounts' status, about a second behind. It implements
// manager.Runnable and runs on the leader.
type Projector struct {
	client   client.Client
	recorder events.EventRecorder
	balances BalanceReader
	clock    clock.WithTicker
	logger   logr.Logger
	gauges   *balanceGauges

	mu      sync.Mutex
	recheck bool
	gone    []string
}

// NewProjector returns a projector and registers its metrics.
func NewProjector(
	c client.Client, recorder events.EventRecorder, balances BalanceReader, clk clock.WithTicker, logger logr.Logger, registry prometheus.Registerer,
) *Projector {
	return &Projector{client: c, recorder: recorder, balances: balances, clock: clk, logger: logger, gauges: newBalanceGauges(registry)}
}

// Recheck has the next round read every account, not only changed ones: an API object that was deleted and created
// again has an empty status although its ledger row has not changed.
func (p *Projector) Recheck() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.recheck = true
}

// Forget drops the metrics of an account that no longer exists.
func (p *Projector) Forget(account string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = append(p.gone, account)
}

// NeedLeaderElection is true: one writer is enough.
func (p *Projector) NeedLeaderElection() bool { return true }

// Start polls until ctx ends.
func (p *Projector) Start(ctx context.Context) error {
	ticker := p.clock.NewTicker(pollEvery)
	defer ticker.Stop()
	state := pollState{waiting: map[string]ledger.Account{}}
	failing := false
	for {
		err := p.poll(ctx, &state)
		if err != nil && !failing {
			p.logger.Error(err, "Balances cannot be read; what is shown grows old")
		} else if err == nil && failing {
			p.logger.Info("Balances are read again")
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// pollState is what one round leaves to the next: how far the ledger was read, and rows whose status write failed.
type pollState struct {
	round    int
	revision int64
	waiting  map[string]ledger.Account
}

func (p *Projector) poll(ctx context.Context, state *pollState) error {
	p.mu.Lock()
	recheck, gone := p.recheck, p.gone
	p.recheck, p.gone = false, nil
	p.mu.Unlock()
	for _, account := range gone {
		p.gauges.forget(account)
	}
	recheck = recheck || state.round%fullEvery == 0
	state.round++
	since := state.revision
	if recheck {
		since = 0
	}
	read, cancel := context.WithTimeout(ctx, pollTimeout)
	rows, err := p.balances.AccountsSince(read, since)
	cancel()
	if err != nil {
		if recheck {
			p.Recheck()
		}
		return fmt.Errorf("read accounts changed since revision %d: %w", since, err)
	}
	for _, row := range rows {
		state.revision = max(state.revision, row.Revision)
		state.waiting[row.Name] = row
	}
	for _, name := range slices.Sorted(maps.Keys(state.waiting)) {
		row := state.waiting[name]
		p.gauges.show(row)
		if err := p.write(ctx, row); err != nil {
			p.logger.V(1).Info("Status was not written; next round tries again", "account", name, "error", err.Error())
			continue
		}
		delete(state.waiting, name)
	}
	return nil
}

// write patches the account's status if the row is newer than what it shows. The patch carries the resource version
// it was decided on, so a deposed leader cannot put an older revision over a newer one.
func (p *Projector) write(ctx context.Context, row ledger.Account) error {
	account := &v1alpha1.CreditAccount{}
	if err := p.client.Get(ctx, client.ObjectKey{Name: row.Name}, account); err != nil {
		// In the ledger but not in the API: left alone.
		return client.IgnoreNotFound(err)
	}
	base := account.DeepCopy()
	if !project(&account.Status, row, p.clock.Now()) {
		return nil
	}
	frozen := gotFrozen(base.Status, account.Status)
	err := p.client.Status().Patch(ctx, account, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("write status of account %s: %w", row.Name, err)
	}
	if frozen {
		p.recorder.Eventf(account, nil, corev1.EventTypeWarning, "Frozen", "Freeze",
			"nothing can be held or moved by hand until somebody who keeps the ledger has unfrozen it: %s", row.Frozen)
	}
	return nil
}

// balanceGauges show balances in credits. Prometheus is where exact amounts become floats.
type balanceGauges struct {
	available, balance, reserved, charged *prometheus.GaugeVec
}

func newBalanceGauges(registry prometheus.Registerer) *balanceGauges {
	gauge := func(name, help string) *prometheus.GaugeVec {
		vector := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"account"})
		registry.MustRegister(vector)
		return vector
	}
	return &balanceGauges{
		available: gauge("gpubank_account_available_credits", "Balance minus reserved, before overdraft."),
		balance:   gauge("gpubank_account_balance_credits", "All that came in less all that went out."),
		reserved:  gauge("gpubank_account_reserved_credits", "Set aside by open reservations."),
		charged:   gauge("gpubank_account_charged_credits", "Charged since the account began."),
	}
}

func (g *balanceGauges) show(row ledger.Account) {
	credits := func(amount ledger.Microcredits) float64 { return float64(amount) / float64(ledger.Credit) }
	g.available.WithLabelValues(row.Name).Set(credits(row.Available()))
	g.balance.WithLabelValues(row.Name).Set(credits(row.Balance))
	g.reserved.WithLabelValues(row.Name).Set(credits(row.Reserved))
	g.charged.WithLabelValues(row.Name).Set(credits(row.Charged))
}

func (g *balanceGauges) forget(account string) {
	for _, vector := range []*prometheus.GaugeVec{g.available, g.balance, g.reserved, g.charged} {
		vector.DeleteLabelValues(account)
	}
}
