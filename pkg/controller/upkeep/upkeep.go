package upkeep

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/gpubank/gpubank/pkg/ledger"
)

const (
	// stepTimeout bounds one step, which takes well below a second.
	stepTimeout = 30 * time.Second
	// restShare is how long upkeep rests after a step, by how long the step took: it uses a fifth of one connection at most. At 8,000
	// GPUs, 133 intervals come in per second, and a step compacts tens of thousands of them per second.
	restShare = 4
	// busyRetries is how often a step is tried again that a writer was in the way of. The next pass comes to it anyway.
	busyRetries = 3
	// busyPause is what a writer's batch takes, generously.
	busyPause = time.Second
	// unsoundLogged bounds the lines of one pass about allocations that do not add up; the metric counts all, audits name them.
	unsoundLogged = 10
)

// Ledger is what the package needs of the store. Each method does one bounded step.
type Ledger interface {
	// Compact compacts some of the allocations that ended before a moment, from a cursor on.
	Compact(ctx context.Context, before time.Time, from ledger.CompactionCursor) (ledger.CompactionResult, error)
	// LooseAllocations counts those that are left.
	LooseAllocations(ctx context.Context, before time.Time) (int64, error)
	// ForgetCommands forgets some of the answers that were given before a moment, from a cursor on.
	ForgetCommands(ctx context.Context, before time.Time, from ledger.ForgetCursor) (ledger.ForgetResult, error)
	// ForgetDeviceHolds forgets some of the GPUs of pods that ended before a moment.
	ForgetDeviceHolds(ctx context.Context, before time.Time) (forgotten int64, more bool, err error)
}

// Options configure an Upkeep. Every field is required, but ages of 0 switch their task off.
type Options struct {
	Ledger Ledger
	// CompactAfter is the age of an allocation's end at which its intervals are compacted.
	CompactAfter time.Duration
	// Remember is how long answers are remembered at least, RememberGPUs which GPUs pods were metered on.
	Remember, RememberGPUs time.Duration
	// Interval is how long to wait between two passes.
	Interval time.Duration
	Clock    clock.Clock
	Logger   logr.Logger
	Registry prometheus.Registerer
}

// Upkeep implements manager.Runnable and runs on the leader.
type Upkeep struct {
	options Options
	metrics *metrics
}

// New returns an upkeep and registers its metrics.
func New(options Options) *Upkeep {
	return &Upkeep{options: options, metrics: newMetrics(options.Registry)}
}

// NeedLeaderElection is true: one is enough, though more would do no harm.
func (u *Upkeep) NeedLeaderElection() bool { return true }

// Start makes one pass after the other until ctx ends.
func (u *Upkeep) Start(ctx context.Context) error {
	tasks := u.tasks()
	for _, task := range tasks { // what never succeeds grows old from here
		u.metrics.succeeded(task.name, u.options.Clock.Now())
	}
	failing := make(map[string]bool)
	for {
		for _, task := range tasks {
			logger := u.options.Logger.WithValues("task", task.name)
			err := task.pass(ctx, logger)
			switch {
			case ctx.Err() != nil:
				return nil
			case err == nil:
				u.metrics.succeeded(task.name, u.options.Clock.Now())
				if failing[task.name] {
					logger.Info("Upkeep of the ledger works again")
				}
			case !failing[task.name]:
				logger.Error(err, "Upkeep of the ledger failed; trying again")
			}
			failing[task.name] = err != nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-u.options.Clock.After(u.options.Interval):
		}
	}
}

type task struct {
	name string
	pass func(context.Context, logr.Logger) error
}

// tasks are those that are switched on.
func (u *Upkeep) tasks() (tasks []task) {
	if u.options.CompactAfter > 0 {
		tasks = append(tasks, task{compacting, u.compact})
	}
	if u.options.Remember > 0 {
		tasks = append(tasks, task{forgetting, u.forgetCommands})
	}
	if u.options.RememberGPUs > 0 {
		tasks = append(tasks, task{forgettingGPUs, u.forgetDeviceHolds})
	}
	return tasks
}

// compact makes one pass over what has ended.
func (u *Upkeep) compact(ctx context.Context, logger logr.Logger) error {
	before := u.options.Clock.Now().Add(-u.options.CompactAfter)
	var from ledger.CompactionCursor
	var done ledger.CompactionResult
	busy, unsound := 0, 0
	for more := true; more; {
		var step ledger.CompactionResult
		if err := u.step(ctx, func(ctx context.Context) (err error) {
			step, err = u.options.Ledger.Compact(ctx, before, from)
			return err
		}); err != nil {
			return err
		}
		if step.Busy {
			if busy++; busy > busyRetries {
				logger.V(1).Info("Writers are at allocations that are to be compacted; leaving them to the next pass")
				break
			}
			if !u.rest(ctx, busyPause) {
				return ctx.Err()
			}
			continue
		}
		for _, why := range step.Unsound {
			if unsound++; unsound <= unsoundLogged {
				logger.Info("Allocation does not add up and is not compacted; kubectl credit audit says what is wrong", "reason", why)
			}
		}
		u.metrics.compacted(step)
		done.Allocations, done.Intervals, done.Rows = done.Allocations+step.Allocations, done.Intervals+step.Intervals, done.Rows+step.Rows
		busy, from, more = 0, step.Next, step.More
	}
	u.metrics.unsound.Set(float64(unsound))
	left, err := u.options.Ledger.LooseAllocations(ctx, before)
	if err != nil {
		return err
	}
	u.metrics.loose.Set(float64(left))
	if done.Intervals > 0 {
		logger.Info("Ledger's intervals were compacted", "allocations", done.Allocations, "intervals", done.Intervals, "rows", done.Rows, "left", left)
	}
	return nil
}

// forgetCommands makes one pass over what is old.
func (u *Upkeep) forgetCommands(ctx context.Context, logger logr.Logger) error {
	before := u.options.Clock.Now().Add(-u.options.Remember)
	var from ledger.ForgetCursor
	forgotten := int64(0)
	for more := true; more; {
		if err := u.step(ctx, func(ctx context.Context) error {
			step, err := u.options.Ledger.ForgetCommands(ctx, before, from)
			u.metrics.answers.Add(float64(step.Forgotten))
			forgotten, from, more = forgotten+step.Forgotten, step.Next, step.More
			return err
		}); err != nil {
			return err
		}
	}
	if forgotten > 0 {
		logger.Info("Ledger has forgotten old answers", "answers", forgotten)
	}
	return nil
}

func (u *Upkeep) forgetDeviceHolds(ctx context.Context, logger logr.Logger) error {
	before := u.options.Clock.Now().Add(-u.options.RememberGPUs)
	forgotten := int64(0)
	for more := true; more; {
		if err := u.step(ctx, func(ctx context.Context) (err error) {
			var step int64
			step, more, err = u.options.Ledger.ForgetDeviceHolds(ctx, before)
			u.metrics.gpuHolds.Add(float64(step))
			forgotten += step
			return err
		}); err != nil {
			return err
		}
	}
	if forgotten > 0 {
		logger.Info("Ledger has forgotten on which GPUs pods were long ago", "holds", forgotten)
	}
	return nil
}

// step does one step, and rests in proportion.
func (u *Upkeep) step(ctx context.Context, do func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	began := u.options.Clock.Now()
	if err := do(limited); err != nil {
		return err
	}
	if !u.rest(ctx, restShare*u.options.Clock.Since(began)) {
		return fmt.Errorf("upkeep is stopped: %w", ctx.Err())
	}
	return nil
}

// rest reports whether there is time left afterwards.
func (u *Upkeep) rest(ctx context.Context, pause time.Duration) bool {
	if pause <= 0 {
		return ctx.Err() == nil
	}
	select {
	case <-ctx.Done():
		return false
	case <-u.options.Clock.After(pause):
		return true
	}
}
