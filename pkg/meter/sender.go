package meter

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"strconv"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/gpubank/gpubank/internal/failpoint"
	"github.com/gpubank/gpubank/pkg/meter/intakeapi"
)

const (
	// firstBackoff doubles up to lastBackoff. The first lets a restarting controller come back; the last keeps a node's
	// spool from waiting long after an outage, and 1,000 nodes below 140 requests a second during one.
	firstBackoff = time.Second
	lastBackoff  = 15 * time.Second
	// longestRetryAfter bounds what a server may ask for.
	longestRetryAfter = 10 * time.Minute
)

// Intake is the controller's side; intakeapi.Client is one. Report answers every interval of the request, in order.
type Intake interface {
	Register(context.Context, intakeapi.RegisterRequest) (intakeapi.RegisterResponse, error)
	Report(context.Context, intakeapi.IntervalsRequest) (intakeapi.IntervalsResponse, error)
	// ReportFaults keeps all faults of the request, or returns an error.
	ReportFaults(context.Context, intakeapi.FaultsRequest) error
}

// Sender brings spooled intervals to the intake, oldest first, until each is answered for good.
type Sender struct {
	node    string
	holder  string
	intake  Intake
	spool   *Spool
	clock   clock.Clock
	chance  func() float64 // 0 to 1, for jitter
	metrics *Metrics

	epoch int64 // 0 until registered
	batch int
	// waits are pods whose intervals were refused for now. Others' go on.
	waits map[string]podWait
	// failures counts failed requests in a row.
	failures int
	// faultWait is when faults that were not taken are sent again. Intervals go on meanwhile.
	faultWait podWait
}

type podWait struct {
	refusals int
	until    time.Time
}

// NewSender makes a sender with an identity of its own; chance is a source of numbers from 0 to 1.
func NewSender(node string, intake Intake, spool *Spool, clock clock.Clock, chance func() float64, metrics *Metrics) *Sender {
	return &Sender{
		node: node, holder: rand.Text(), intake: intake, spool: spool, clock: clock, chance: chance, metrics: metrics,
		batch: intakeapi.MaxIntervals, waits: map[string]podWait{},
	}
}

// Run sends until ctx ends, or until a newer agent of this node has registered: that error wraps
// intakeapi.ErrStaleEpoch, and the process must end.
func (s *Sender) Run(ctx context.Context) error {
	for {
		delay, err := s.step(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, intakeapi.ErrStaleEpoch) {
			return err
		}
		if err != nil {
			klog.FromContext(ctx).Error(err, "Intervals were not reported; they are kept and sent again", "retryIn", delay, "waiting", s.spool.Depth())
		}
		if delay == 0 {
			continue
		}
		timer := s.clock.NewTimer(delay)
		appended := s.spool.Appended()
		if err != nil {
			appended = nil // new intervals are no reason to knock again sooner
		}
		select {
		case <-ctx.Done():
		case <-appended:
		case <-timer.C():
		}
		timer.Stop()
	}
}

// step makes one request. It returns how long to wait before the next.
func (s *Sender) step(ctx context.Context) (time.Duration, error) {
	if s.epoch == 0 {
		response, err := s.intake.Register(ctx, intakeapi.RegisterRequest{Node: s.node, Holder: s.holder})
		if err != nil {
			return s.failed(err), err
		}
		s.epoch, s.failures = response.Epoch, 0
		klog.FromContext(ctx).Info("Registered with the intake", "epoch", s.epoch)
	}
	now := s.clock.Now()
	// Faults first: when an attempt's last interval is in, so are the faults that it met.
	if err := s.reportFaults(ctx, now); errors.Is(err, intakeapi.ErrStaleEpoch) {
		return 0, err
	}
	next, err := s.spool.Next(s.batch, func(podUID string) bool { return s.waits[podUID].until.After(now) })
	if err != nil {
		return s.failed(err), err
	}
	if len(next) == 0 {
		return s.idle(now), nil
	}
	request := intakeapi.IntervalsRequest{Node: s.node, Epoch: s.epoch}
	for _, interval := range next {
		request.Intervals = append(request.Intervals, interval.Interval)
	}
	response, err := s.intake.Report(ctx, request)
	if err != nil {
		return s.refusedWhole(next, now, err), err
	}
	s.failures, s.batch = 0, intakeapi.MaxIntervals
	failpoint.Hit("meter.before-ack")
	if err := s.acknowledge(ctx, next, response.Results, now); err != nil {
		return s.backoff(0), err // the intake will answer "repeat"
	}
	return 0, nil
}

// reportFaults sends the waiting faults. One failure makes them wait, but never intervals: an intake of an earlier
// release does not take them.
func (s *Sender) reportFaults(ctx context.Context, now time.Time) error {
	if s.faultWait.until.After(now) {
		return nil
	}
	next, err := s.spool.NextFaults(intakeapi.MaxFaults)
	if err == nil && len(next) > 0 {
		request := intakeapi.FaultsRequest{Node: s.node, Epoch: s.epoch}
		for _, fault := range next {
			request.Faults = append(request.Faults, fault.Fault)
		}
		if err = s.intake.ReportFaults(ctx, request); err == nil {
			err = s.spool.AcknowledgeFaults(next) // the intake knows a repeat
		}
	}
	if err == nil {
		s.faultWait = podWait{}
		return nil
	}
	if s.faultWait.refusals == 0 && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Device faults were not reported; they are kept and sent again")
	}
	s.faultWait.until = now.Add(s.backoff(s.faultWait.refusals))
	s.faultWait.refusals++
	return err
}

// acknowledge forgets what was answered for good, and lets pods wait whose intervals were refused for now.
func (s *Sender) acknowledge(ctx context.Context, sent []SpooledInterval, results []intakeapi.Result, now time.Time) error {
	logger := klog.FromContext(ctx)
	var settled []SpooledInterval
	refusedNow := map[string]bool{}
	for i, result := range results {
		interval := sent[i]
		s.metrics.answered(result)
		if result.Settled() {
			settled = append(settled, interval)
			delete(s.waits, interval.PodUID)
		}
		if result.Outcome != intakeapi.Refused {
			continue
		}
		if result.Settled() {
			logger.Error(nil, "The intake refused an interval for good; the ledger keeps the discrepancy",
				"pod", interval.PodUID, "start", interval.Start, "end", interval.End, "code", result.Code, "reason", result.Message)
			continue
		}
		refusedNow[interval.PodUID] = true
		logger.V(2).Info("The intake cannot take an interval yet", "pod", interval.PodUID, "start", interval.Start, "code", result.Code, "reason", result.Message)
	}
	for podUID := range refusedNow {
		s.postpone(podUID, now)
	}
	if err := s.spool.Acknowledge(settled); err != nil {
		return err
	}
	if len(settled) > 0 {
		s.metrics.acknowledged(s.clock.Now())
	}
	return nil
}

// refusedWhole handles a request that got no results.
func (s *Sender) refusedWhole(sent []SpooledInterval, now time.Time, err error) time.Duration {
	var status *intakeapi.StatusError
	if errors.As(err, &status) && (status.Status == http.StatusBadRequest || status.Status == http.StatusRequestEntityTooLarge) {
		s.metrics.failed(strconv.Itoa(status.Status))
		// One interval that the intake cannot even read must not hold up the others: find it by halves, and let its
		// pod wait. It stays in the spool, where the oldest interval's age tells of it.
		if len(sent) > 1 {
			s.batch = max(1, len(sent)/2)
		} else {
			s.postpone(sent[0].PodUID, now)
			s.batch = intakeapi.MaxIntervals
		}
		return firstBackoff
	}
	return s.failed(err)
}

func (s *Sender) postpone(podUID string, now time.Time) {
	wait := s.waits[podUID]
	wait.until = now.Add(s.backoff(wait.refusals))
	wait.refusals++
	s.waits[podUID] = wait
}

func (s *Sender) failed(err error) time.Duration {
	delay := s.backoff(s.failures)
	s.failures++
	reason := "connection"
	var status *intakeapi.StatusError
	if errors.As(err, &status) {
		reason = strconv.Itoa(status.Status)
		delay = max(delay, min(status.RetryAfter, longestRetryAfter))
	}
	s.metrics.failed(reason)
	return delay
}

// backoff is firstBackoff doubled failures times, at most lastBackoff, less up to a half by chance, so that a
// thousand nodes do not come back at once.
func (s *Sender) backoff(failures int) time.Duration {
	delay := lastBackoff
	if failures < 4 { // 2^4 s is above lastBackoff
		delay = min(delay, firstBackoff<<failures)
	}
	return delay - time.Duration(s.chance()*float64(delay)/2)
}

// idle is how long to wait when nothing can be sent: until the first postponed pod's turn.
func (s *Sender) idle(now time.Time) time.Duration {
	delay := lastBackoff
	if s.faultWait.until.After(now) {
		delay = min(delay, s.faultWait.until.Sub(now))
	}
	for podUID, wait := range s.waits {
		if !wait.until.After(now) {
			delete(s.waits, podUID) // its intervals are gone
			continue
		}
		delay = min(delay, wait.until.Sub(now))
	}
	return delay
}
