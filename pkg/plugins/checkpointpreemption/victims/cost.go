package victims

import (
	"time"

	"github.com/gpubank/gpubank/pkg/workload"
)

// Policy bounds what a workload's own word can do. All durations are whole seconds.
type Policy struct {
	// DefaultInterval is how much a running pod that reports no checkpoint is taken to lose at most, 1 s or more.
	DefaultInterval time.Duration
	// AgeCap is the age beyond which a checkpoint counts as no older, 1 s or more: nothing is immune.
	AgeCap time.Duration
	// MaxRestart bounds the restart that a pod claims.
	MaxRestart time.Duration
}

// Work is what a pod has at stake: enough to tell, at any later moment and without reading its annotations again, what its stop
// destroys. The zero Work is a pod that has not started.
type Work struct {
	GPUs int64
	// Started, Reported and the following are seconds since 1970. Reported is the checkpoint it reports, 0 for none.
	Started, Reported int64
	// Interval is the longest time that is taken to be lost where Reported does not count; 0 for no bound.
	Interval int64
	// Restart in seconds, within the policy.
	Restart int64
}

// WorkOf reads a pod that holds so many GPUs since started, zero if it has not started.
func (p Policy) WorkOf(gpus int64, started time.Time, c workload.Checkpoints) Work {
	w := Work{GPUs: gpus, Interval: seconds(p.DefaultInterval), Restart: seconds(min(c.Restart, p.MaxRestart))}
	if started.IsZero() {
		return Work{GPUs: gpus}
	}
	w.Started = started.Unix()
	if !c.At.IsZero() {
		w.Reported = c.At.Unix()
	}
	switch {
	case c.None:
		w.Interval = 0
	case c.Interval > 0:
		w.Interval = min(w.Interval, seconds(c.Interval))
	}
	return w
}

// Since is from when on a pod's work would be lost, in seconds since 1970, were it stopped now. A report that lies in the future or
// before the start does not count.
func (p Policy) Since(w Work, now int64) int64 {
	since := w.Started
	switch {
	case w.Reported != 0 && w.Reported >= w.Started && w.Reported <= now:
		since = w.Reported
	case w.Interval > 0:
		since = max(since, now-w.Interval)
	}
	return max(min(since, now), now-seconds(p.AgeCap))
}

// Lost is what stopping a pod now destroys, in GPU-seconds:
//
//	GPUs × (min(now − last durable checkpoint, AgeCap) + restart seconds)
//
// and 0 for one that has not started. The sum over everything that stops with a victim is the victim's.
func (p Policy) Lost(w Work, now int64) int64 {
	if w.Started == 0 {
		return 0
	}
	return w.GPUs * (now - p.Since(w, now) + w.Restart)
}

func seconds(d time.Duration) int64 { return int64(d / time.Second) }
