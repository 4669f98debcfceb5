package fairqueue

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/plugins/fairqueue/turn"
)

// Ledger is what the plugin needs of the ledger: its memory of usage.
type Ledger interface {
	// AverageUse reads what each account's own pods have used until at, for each half-life; see ledger.AverageUse. Pods that still
	// run count until at.
	AverageUse(ctx context.Context, at time.Time, halfLives []time.Duration) ([]ledger.AverageUse, error)
}

// Limits on asking. The query looks at every allocation of the last 40 half-lives.
const (
	historyTimeout = time.Minute
	historyRetry   = 2 * time.Second
)

// history is what is known of the past.
type history struct {
	ledger Ledger
	// known: the ledger has answered once.
	known bool
	// wanted: a half-life is new, or nothing is known yet.
	wanted bool
	// asked is when it was last asked.
	asked time.Time
}

// askPast wants past usage read soon. It is called with the lock held.
func (d *desk) askPast() { d.history.wanted = true }

// remember reads past usage when it is wanted, and every HistoryPeriod, until ctx ends. Between, the queue folds what it sees itself; the
// ledger also knows what this process did not see.
func (d *desk) remember(ctx context.Context) {
	ticker := d.clock.NewTicker(d.args.SweepPeriod.Duration)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		if halfLives, due := d.historyDue(); due {
			d.readPast(ctx, halfLives)
		}
	}
}

func (d *desk) historyDue() ([]time.Duration, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock.Now()
	since := now.Sub(d.history.asked)
	due := d.history.wanted && since >= historyRetry || d.history.known && since >= d.args.HistoryPeriod.Duration
	if due {
		d.history.asked = now
	}
	return d.queue.HalfLives(), due && len(d.queue.HalfLives()) > 0
}

func (d *desk) readPast(ctx context.Context, halfLives []time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, historyTimeout)
	defer cancel()
	at := d.clock.Now()
	averages, err := d.history.ledger.AverageUse(ctx, at, halfLives)
	logger := klog.FromContext(ctx)
	if err != nil {
		logger.Info("Past usage could not be read from the ledger; turns go by what is known, and it is asked again", "reason", err.Error())
		return
	}
	past := make([]turn.Past, 0, len(averages))
	for _, a := range averages {
		past = append(past, turn.Past{Account: a.Account, Class: a.Class, HalfLife: a.HalfLife, Average: a.GPUs})
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queue.SetPast(at, past)
	if !d.history.known {
		logger.Info("Past usage is known", "averages", len(past), "took", d.clock.Since(at))
	}
	d.history.known, d.history.wanted = true, false
}
