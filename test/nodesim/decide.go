package nodesim

import (
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
)

// step is what a kubelet does with a pod next.
type step int

const (
	idle   step = iota // nothing before the returned time; never, if it is zero
	admit              // assign devices and report the pod's start
	run                // report its containers running
	finish             // report its containers terminated
	remove             // confirm the deletion to the API server
)

// ending is how a pod finishes.
type ending struct {
	at       time.Time
	exitCode int32
	reason   string // of the pod, beyond its containers; such as DeadlineExceeded
	killed   bool   // by its deletion, hence by a kubelet that had to notice that first
}

// next decides what to do with a pod at now. Every time is a whole second, as in pod status.
func next(pod *v1.Pod, now time.Time) (step, time.Time, ending) {
	deleted := pod.DeletionTimestamp != nil
	switch {
	case pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed:
		if deleted && (pod.DeletionGracePeriodSeconds == nil || *pod.DeletionGracePeriodSeconds > 0) {
			return remove, time.Time{}, ending{}
		}
		return idle, time.Time{}, ending{}
	case pod.Status.StartTime == nil && deleted:
		return remove, time.Time{}, ending{}
	case pod.Status.StartTime == nil:
		return admit, time.Time{}, ending{}
	}
	started := pod.Status.StartTime.Time
	runs := started.Add(seconds(pod, PullSecondsAnnotation, 0))
	end, ends := endOf(pod, started, runs)
	if ends && !end.at.After(now) {
		if end.killed {
			end.at = now
		}
		return finish, time.Time{}, end
	}
	if pod.Status.Phase != v1.PodRunning && !runs.After(now) {
		return run, time.Time{}, ending{}
	}
	until := end.at
	if pod.Status.Phase != v1.PodRunning && (until.IsZero() || runs.Before(until)) {
		until = runs
	}
	return idle, until, ending{}
}

// endOf is the earliest of the pod's own end, its deadline and its termination.
func endOf(pod *v1.Pod, started, runs time.Time) (ending, bool) {
	var first ending
	consider := func(candidate ending) {
		if first.at.IsZero() || candidate.at.Before(first.at) {
			first = candidate
		}
	}
	if duration := seconds(pod, RunSecondsAnnotation, -time.Second); duration >= 0 {
		consider(ending{at: runs.Add(duration), exitCode: int32(seconds(pod, ExitCodeAnnotation, 0) / time.Second)})
	}
	if deadline := pod.Spec.ActiveDeadlineSeconds; deadline != nil {
		consider(ending{at: started.Add(time.Duration(*deadline) * time.Second), exitCode: 137, reason: "DeadlineExceeded"})
	}
	if pod.DeletionTimestamp != nil {
		grace := time.Duration(0)
		if pod.DeletionGracePeriodSeconds != nil {
			grace = time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
		}
		asked := pod.DeletionTimestamp.Add(-grace)
		// 143: ended by SIGTERM; 137: still there after the grace period, killed.
		stop := ending{at: asked.Add(min(seconds(pod, TermSecondsAnnotation, 0), grace)), exitCode: 143, killed: true}
		if seconds(pod, TermSecondsAnnotation, 0) > grace {
			stop.exitCode = 137
		}
		if stop.at.Before(started) {
			stop.at = started
		}
		consider(stop)
	}
	return first, !first.at.IsZero()
}

// seconds reads an annotation of whole seconds; anything unreadable is as good as absent.
func seconds(pod *v1.Pod, annotation string, absent time.Duration) time.Duration {
	n, err := strconv.ParseInt(pod.Annotations[annotation], 10, 32)
	if err != nil || n < 0 {
		return absent
	}
	return time.Duration(n) * time.Second
}
