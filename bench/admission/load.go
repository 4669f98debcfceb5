package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// latencies of one run, in increasing order, and how late the generator itself was.
type latencies struct {
	sorted []time.Duration
	// lag is the 99th percentile of how long after its scheduled time a request was sent: it is part of every latency, and
	// says whether the generator measures itself.
	lag time.Duration
}

// quantile q, from 0 to 1, in milliseconds: the smallest latency that at least that part of the requests did not exceed.
func (l latencies) quantile(q float64) float64 {
	return float64(at(l.sorted, q)) / float64(time.Millisecond)
}

func (l latencies) String() string {
	return fmt.Sprintf("p50 %.1f ms, p99 %.1f ms, longest %.1f ms, sent %.1f ms late at p99",
		l.quantile(.50), l.quantile(.99), l.quantile(1), float64(l.lag)/float64(time.Millisecond))
}

func at(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		panic("admission: a quantile of no measurements")
	}
	rank := int(q*float64(len(sorted))+.9999999) - 1
	return sorted[min(max(rank, 0), len(sorted)-1)]
}

// constantRate calls do count times at rate per second, each at its scheduled time however long the others take, and returns the
// latencies from the scheduled times, without those of the first warmUp calls. do gets the number of the call. The first
// failed call's error is returned once all calls are over.
func constantRate(ctx context.Context, rate, count, warmUp int, do func(ctx context.Context, i int) error) (latencies, error) {
	taken := make([]time.Duration, count)
	late := make([]time.Duration, count)
	failures := make([]error, count)
	var running sync.WaitGroup
	began := time.Now()
	for i := range count {
		scheduled := began.Add(time.Duration(i) * time.Second / time.Duration(rate))
		if err := waitUntil(ctx, scheduled); err != nil {
			running.Wait()
			return latencies{}, err
		}
		running.Go(func() {
			late[i] = time.Since(scheduled)
			failures[i] = do(ctx, i)
			taken[i] = time.Since(scheduled)
		})
	}
	running.Wait()
	if i := slices.IndexFunc(failures, func(err error) bool { return err != nil }); i >= 0 {
		return latencies{}, fmt.Errorf("request %d of %d: %w", i+1, count, failures[i])
	}
	if warmUp >= count {
		return latencies{}, errors.New("the whole run is its own warm-up: make it longer")
	}
	taken, late = taken[warmUp:], late[warmUp:]
	slices.Sort(taken)
	slices.Sort(late)
	return latencies{sorted: taken, lag: at(late, .99)}, nil
}

func waitUntil(ctx context.Context, when time.Time) error {
	wait := time.Until(when)
	if wait <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
