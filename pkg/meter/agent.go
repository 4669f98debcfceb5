package meter

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/gpubank/gpubank/pkg/nvml"
)

// Pods is what the API server tells of the node's pods; PodWatch is one.
type Pods interface {
	// Pods are the pods that exist, and those deleted and not yet forgotten; both at one moment, so that none is missing.
	Pods() (pods map[PodName]PodFacts, gone []PodFacts)
	ForgetGone([]PodFacts)
	Ended() <-chan struct{}
}

// Holdings is what the kubelet tells; Kubelet is one.
type Holdings interface {
	List(context.Context) (Listing, error)
}

// Agent looks at its node again and again, and has what it finds reported.
type Agent struct {
	Pods     Pods
	Holdings Holdings
	Spool    *Spool
	Sender   *Sender
	Metrics  *Metrics
	Clock    clock.WithTicker
	Settings Settings
	// LookEvery is the time between two looks, at most Settings.ConfirmAfter.
	LookEvery time.Duration
	// OpenDevices opens the node's devices; it is tried again while it fails, since a driver may come later.
	OpenDevices func() (nvml.Devices, error)

	steady  SteadyClock
	started time.Time
	unknown map[string]*unknownHolding
	devices deviceReader
	problem string // what the last look failed with
	full    bool   // whether it found the spool full

	mu       sync.Mutex
	lastLook time.Time // the last that the kubelet answered
	lastTry  time.Time
}

// unknownHolding is a hold that is not known to be any pod's, with elapsed times.
type unknownHolding struct {
	listed      ListedPod
	gpus        float64
	since, last time.Duration
}

// Run works until ctx ends, or until a newer agent of this node has registered (intakeapi.ErrStaleEpoch).
func (a *Agent) Run(ctx context.Context) error {
	a.started = a.Clock.Now()
	a.unknown = map[string]*unknownHolding{}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return a.Sender.Run(ctx) })
	group.Go(func() error {
		ticker := a.Clock.NewTicker(a.LookEvery)
		defer ticker.Stop()
		for {
			if err := a.look(ctx); ctx.Err() == nil {
				a.say(ctx, err)
			}
			select {
			case <-ctx.Done():
				return nil
			case <-ticker.C():
			case <-a.Pods.Ended():
			}
		}
	})
	return group.Wait()
}

// say logs a problem when it begins, changes or ends, not with every look.
func (a *Agent) say(ctx context.Context, err error) {
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	switch {
	case problem == a.problem:
	case err != nil:
		klog.FromContext(ctx).Error(err, "Looks at the node fail; the first that succeeds makes up for them")
	default:
		klog.FromContext(ctx).Info("Looks at the node succeed again")
	}
	a.problem = problem
}

// look gathers, decides and applies once.
func (a *Agent) look(ctx context.Context) error {
	steps := a.steady.Steps
	elapsed := a.Clock.Since(a.started)
	observed := Observation{At: a.steady.Now(a.Clock.Now(), elapsed)}
	if steps != a.steady.Steps {
		a.Metrics.clockSteps.Inc()
		klog.FromContext(ctx).Error(nil, "The node's clock stepped; no time is cut from a step until it has stood", "wallClock", a.Clock.Now(), "timeToGoBy", observed.At)
	}
	observed.Before, _ = a.Pods.Pods()
	listing, listErr := a.Holdings.List(ctx)
	if listErr == nil {
		observed.Listing = &listing
	}
	observed.After, observed.Gone = a.Pods.Pods()

	decision := Decide(a.Spool.State(), observed, a.Settings)
	if err := a.Spool.Apply(decision); err != nil {
		a.Metrics.looks.WithLabelValues("failed").Inc()
		return errors.Join(err, listErr)
	}
	a.Pods.ForgetGone(observed.Gone)
	a.account(ctx, decision, observed, elapsed)
	a.Metrics.sampled(a.devices.sample(ctx, a.OpenDevices, a.Metrics))
	faultsErr := a.keepFaults(ctx, observed.At)

	a.mu.Lock()
	defer a.mu.Unlock()
	a.lastTry = a.Clock.Now()
	if listErr != nil {
		a.Metrics.looks.WithLabelValues("kubelet_silent").Inc()
		return errors.Join(faultsErr, fmt.Errorf("ask the kubelet who holds which GPU: %w", listErr))
	}
	a.lastLook = a.lastTry
	a.Metrics.looks.WithLabelValues("complete").Inc()
	return faultsErr
}

// keepFaults puts what the driver raised into the spool.
func (a *Agent) keepFaults(ctx context.Context, now time.Time) error {
	dropped, err := a.Spool.AddFaults(a.devices.faults(ctx, now, a.Metrics))
	if dropped > 0 {
		klog.FromContext(ctx).Error(nil, "More device faults wait for the intake than are kept; the latest are dropped", "dropped", dropped)
	}
	return err
}

// account tells, in metrics and logs, what a decision says beside its intervals.
func (a *Agent) account(ctx context.Context, decision Decision, observed Observation, elapsed time.Duration) {
	logger := klog.FromContext(ctx)
	for _, record := range decision.Vanished {
		a.Metrics.vanished.Inc()
		logger.Error(nil, "A pod disappeared before its finish was seen; the controller charges the rest from what the API server last knew",
			"pod", klog.KRef(record.Name.Namespace, record.Name.Name), "uid", record.PodUID, "measuredUntil", record.LastCut)
	}
	full := 0.0
	if decision.SpoolFull {
		full = 1
	}
	if decision.SpoolFull && !a.full {
		logger.Error(nil, "The spool is at its limit; time is cut once the intake has acknowledged some of it", "waiting", a.Spool.Depth(), "limit", a.Settings.SpoolLimit)
	}
	a.full = decision.SpoolFull
	a.Metrics.full.Set(full)
	if observed.Listing == nil {
		return
	}
	current := map[string]bool{}
	gpus := 0.0
	for _, listed := range decision.Unattributed {
		key := listed.key()
		current[key] = true
		if a.unknown[key] == nil {
			unknown := &unknownHolding{listed: listed, since: elapsed}
			for _, device := range heldDevices(listed.DeviceIDs, observed.Listing.Replicas) {
				unknown.gpus += device.Share()
			}
			a.unknown[key] = unknown
		}
		a.unknown[key].last = elapsed
		gpus += a.unknown[key].gpus
	}
	a.Metrics.heldUnknown.Set(gpus)
	attributed := map[string]bool{}
	for _, listed := range observed.Listing.Pods {
		attributed[listed.key()] = !current[listed.key()]
	}
	for key, unknown := range a.unknown {
		if current[key] {
			continue
		}
		delete(a.unknown, key)
		if attributed[key] {
			continue // its pod turned out, and its time is cut from that pod's start
		}
		a.Metrics.unattributed.Add((unknown.last - unknown.since).Seconds() * unknown.gpus)
		logger.Error(nil, "GPUs were held by a pod that could not be told from another of its name",
			"pod", klog.KRef(unknown.listed.Name.Namespace, unknown.listed.Name.Name), "gpus", unknown.gpus, "for", unknown.last-unknown.since)
	}
}

func (p ListedPod) key() string {
	return p.Name.Namespace + "/" + p.Name.Name + " " + strings.Join(p.DeviceIDs, " ")
}

// healthyFor is how many looks may fail in a row before the agent calls itself unready (kubelet silent) or unhealthy
// (not looking at all).
const healthyFor = 12

// Healthy reports an agent that has stopped looking.
func (a *Agent) Healthy() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if age := a.Clock.Since(a.lastTry); !a.lastTry.IsZero() && age > healthyFor*a.LookEvery {
		return fmt.Errorf("the last look at the node was %s ago", age)
	}
	return nil
}

// Ready reports an agent that does not see its node.
func (a *Agent) Ready() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lastLook.IsZero() {
		return errors.New("the kubelet has not answered yet")
	}
	if age := a.Clock.Since(a.lastLook); age > healthyFor*a.LookEvery {
		return fmt.Errorf("the kubelet last answered %s ago", age)
	}
	return nil
}
