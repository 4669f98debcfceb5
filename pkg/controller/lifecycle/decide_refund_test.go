package lifecycle

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/workload"
)

func failed(p *corev1.Pod) {
	finished(p)
	p.Status.Phase = corev1.PodFailed
	p.Status.ContainerStatuses[0].State.Terminated.ExitCode = 1
}

func disrupted(reason string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason, LastTransitionTime: metav1.NewTime(at(400)),
		})
	}
}

func checkpointed(when string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations = map[string]string{workload.CheckpointedAtAnnotation: when} }
}

// deletedAt is a deletion that was asked for at so many seconds, with the default grace period.
func deletedAt(seconds int) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = ptr.To(metav1.NewTime(at(seconds+30))), ptr.To(int64(30))
	}
}

func TestDecideRefund(t *testing.T) {
	everything := ledger.RefundPolicy{FailedPercent: 50, PreemptedSinceCheckpoint: true, DeviceFault: true}
	preempted := disrupted(corev1.PodReasonPreemptionByScheduler)
	refund := func(cause ledger.RefundCause, reason string) *ledger.Refund {
		return &ledger.Refund{Key: "refund:pod-1", PodUID: "pod-1", Cause: cause, Reason: reason}
	}
	for name, c := range map[string]struct {
		pod     []func(*corev1.Pod)
		policy  ledger.RefundPolicy
		node    nodeFacts
		want    *ledger.Refund
		at      int // the checkpoint that counts, in seconds
		ignored string
	}{
		"succeeded":                     {pod: pods(finished), policy: everything},
		"succeeded although preempted":  {pod: pods(finished, preempted), policy: everything},
		"failed, no refunds":            {pod: pods(failed)},
		"failed":                        {pod: pods(failed), policy: everything, want: refund(ledger.RefundFailed, "")},
		"failed by an eviction":         {pod: pods(failed, reason("Evicted")), policy: everything, want: refund(ledger.RefundFailed, "Evicted")},
		"its own deadline":              {pod: pods(failed, reason(reasonDeadline)), policy: everything},
		"rejected by its kubelet":       {pod: pods(rejected), policy: everything},
		"deleted, then failed":          {pod: pods(failed, deletedAt(415)), policy: everything},
		"deleted in the same second":    {pod: pods(failed, deletedAt(420)), policy: everything},
		"failed, then deleted":          {pod: pods(failed, deletedAt(430)), policy: everything, want: refund(ledger.RefundFailed, "")},
		"preempted":                     {pod: pods(failed, preempted, deletedAt(415)), policy: everything, want: refund(ledger.RefundPreempted, corev1.PodReasonPreemptionByScheduler)},
		"by a taint":                    {pod: pods(failed, disrupted("DeletionByTaintManager")), policy: everything, want: refund(ledger.RefundPreempted, "DeletionByTaintManager")},
		"by its kubelet":                {pod: pods(failed, disrupted(corev1.PodReasonTerminationByKubelet)), policy: everything, want: refund(ledger.RefundPreempted, corev1.PodReasonTerminationByKubelet)},
		"on a lost node":                {pod: pods(running, disrupted("DeletionByPodGC")), policy: everything, node: nodeLost, want: refund(ledger.RefundPreempted, "DeletionByPodGC")},
		"evicted, perhaps by itself":    {pod: pods(failed, disrupted(evictedOnRequest), deletedAt(415)), policy: everything},
		"evicted from a cordoned node":  {pod: pods(failed, disrupted(evictedOnRequest), deletedAt(415)), policy: everything, node: nodeFacts{cordoned: true}, want: refund(ledger.RefundPreempted, evictedOnRequest)},
		"a reason nobody gives":         {pod: pods(failed, disrupted("BecauseISaySo")), policy: everything},
		"a condition that is not true":  {pod: pods(failed, preempted, func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }), policy: everything, want: refund(ledger.RefundFailed, "")},
		"checkpointed":                  {pod: pods(failed, preempted, checkpointed("2026-03-01T12:05:00Z")), policy: everything, want: refund(ledger.RefundPreempted, corev1.PodReasonPreemptionByScheduler), at: 300},
		"checkpointed in another zone":  {pod: pods(failed, preempted, checkpointed("2026-03-01T13:05:00+01:00")), policy: everything, want: refund(ledger.RefundPreempted, corev1.PodReasonPreemptionByScheduler), at: 300},
		"checkpointed in the future":    {pod: pods(failed, preempted, checkpointed("2026-03-01T13:05:00Z")), policy: everything, want: refund(ledger.RefundPreempted, corev1.PodReasonPreemptionByScheduler), ignored: "in the future"},
		"checkpointed before the start": {pod: pods(failed, preempted, checkpointed("2026-03-01T11:00:00Z")), policy: everything, want: refund(ledger.RefundPreempted, corev1.PodReasonPreemptionByScheduler), ignored: "before the pod's start"},
		"checkpointed somehow":          {pod: pods(failed, preempted, checkpointed("noon")), policy: everything, want: refund(ledger.RefundPreempted, corev1.PodReasonPreemptionByScheduler), ignored: "no time in RFC 3339"},
		"a failure needs no checkpoint": {pod: pods(failed, checkpointed("noon")), policy: everything, want: refund(ledger.RefundFailed, "")},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podWith(c.pod...)
			got, ignored, wait := decideRefund(key, workload.Held(pod), podFacts{now: at(500), nodeGrace: grace, pod: pod, node: c.node, refunds: c.policy})
			if wait != 0 {
				t.Errorf("it is to be decided in %s", wait)
			}
			if c.at != 0 {
				c.want.CheckpointedAt = at(c.at)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if (c.ignored == "") != (ignored == "") || !strings.Contains(ignored, c.ignored) {
				t.Errorf("the checkpoint is ignored because %q, want %q", ignored, c.ignored)
			}
		})
	}
}

func pods(changes ...func(*corev1.Pod)) []func(*corev1.Pod) { return changes }

func reason(text string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Status.Reason = text } }

// A refund comes with the end, or after a crash on its own; never for a pod that was let go.
func TestRefundComesWithTheEnd(t *testing.T) {
	policy := ledger.RefundPolicy{FailedPercent: 50}
	charged := func(a *ledger.Allocation) { a.Charged = 1680 * ledger.Credit }
	for name, c := range map[string]struct {
		pod        *corev1.Pod
		allocation *ledger.Allocation
		want       bool
	}{
		"with the end":              {podWith(failed), allocation(ledger.AllocationMetering), true},
		"after a crash":             {podWith(failed), allocation(ledger.AllocationEnded, charged), true},
		"charged nothing":           {podWith(failed), allocation(ledger.AllocationEnded), false},
		"given back":                {podWith(failed), allocation(ledger.AllocationEnded, charged, func(a *ledger.Allocation) { a.RefundedFor = ledger.RefundFailed }), false},
		"let go":                    {podWith(failed, bare), allocation(ledger.AllocationEnded, charged), false},
		"running":                   {podWith(running), allocation(ledger.AllocationMetering), false},
		"nobody allocated anything": {podWith(failed, unbound), nil, false},
	} {
		got := decidePod(key, podFacts{now: at(500), nodeGrace: grace, node: nodeAlive, pod: c.pod, allocation: c.allocation, refunds: policy})
		if (got.refund != nil) != c.want {
			t.Errorf("%s: %+v", name, got.refund)
		}
	}
}

func TestDecideRefundOfADeviceFault(t *testing.T) {
	policy := ledger.RefundPolicy{FailedPercent: 50, PreemptedPercent: 50, DeviceFault: true}
	fault := func(gpu string, xid int64, since, to int) []ledger.DeviceFault {
		return []ledger.DeviceFault{{Node: "n1", GPUUUID: gpu, XID: xid, Since: at(since), At: at(to)}}
	}
	preempted := disrupted(corev1.PodReasonPreemptionByScheduler)
	for name, c := range map[string]struct {
		now    int
		pod    []func(*corev1.Pod)
		faults []ledger.DeviceFault
		off    bool
		want   ledger.RefundCause
		wait   int
	}{
		"a fault":                      {now: 421, pod: pods(failed), faults: fault("GPU-2", 79, 415, 420), want: ledger.RefundDeviceFault},
		"of a shared GPU":              {now: 421, pod: pods(failed), faults: fault("GPU-3", 48, 415, 420), want: ledger.RefundDeviceFault},
		"seen after the pod's end":     {now: 425, pod: pods(failed), faults: fault("GPU-1", 79, 419, 424), want: ledger.RefundDeviceFault},
		"in the end's own second":      {now: 425, pod: pods(failed), faults: fault("GPU-1", 79, 420, 424), want: ledger.RefundDeviceFault},
		"beside a preemption":          {now: 421, pod: pods(failed, preempted), faults: fault("GPU-1", 79, 415, 420), want: ledger.RefundDeviceFault},
		"none yet":                     {now: 421, pod: pods(failed), wait: 59},
		"none until now":               {now: 480, pod: pods(failed), want: ledger.RefundFailed},
		"none, and preempted":          {now: 421, pod: pods(failed, preempted), want: ledger.RefundPreempted},
		"not refunded":                 {now: 421, pod: pods(failed), faults: fault("GPU-1", 79, 415, 420), off: true, want: ledger.RefundFailed},
		"another GPU's":                {now: 480, pod: pods(failed), faults: fault("GPU-9", 79, 415, 420), want: ledger.RefundFailed},
		"after its end":                {now: 480, pod: pods(failed), faults: fault("GPU-1", 79, 421, 425), want: ledger.RefundFailed},
		"before its start":             {now: 480, pod: pods(failed), faults: fault("GPU-1", 79, -9, -1), want: ledger.RefundFailed},
		"the program's own":            {now: 480, pod: pods(failed), faults: fault("GPU-1", 31, 415, 420), want: ledger.RefundFailed},
		"which did not keep it back":   {now: 480, pod: pods(finished), faults: fault("GPU-1", 79, 415, 420)},
		"of one that was deleted":      {now: 480, pod: pods(failed, deletedAt(415)), faults: fault("GPU-1", 79, 410, 414), want: ledger.RefundDeviceFault},
		"deleted, and nothing to wait": {now: 421, pod: pods(failed, deletedAt(415))},
	} {
		pod := podWith(c.pod...)
		facts := podFacts{
			now: at(c.now), nodeGrace: grace, pod: pod, refunds: policy, faults: c.faults,
			allocation: allocation(ledger.AllocationMetering, func(a *ledger.Allocation) { a.GPUUUIDs = []string{"GPU-1", "GPU-2", "GPU-3::1"} }),
		}
		if c.off {
			facts.refunds.DeviceFault, facts.faults = false, nil
		}
		got, _, wait := decideRefund(key, workload.Held(pod), facts)
		cause := ledger.RefundCause("")
		if got != nil {
			cause = got.Cause
		}
		if cause != c.want || wait != time.Duration(c.wait)*time.Second {
			t.Errorf("%s: %+v, wait %s; want %s, wait %d s", name, got, wait, c.want, c.wait)
		}
	}
}

// While the refund is not decided the pod is kept, and its time is settled all the same.
func TestRefundIsAwaitedWithThePod(t *testing.T) {
	got := decidePod(key, podFacts{
		now: at(430), nodeGrace: grace, node: nodeAlive, pod: podWith(failed), allocation: allocation(ledger.AllocationMetering),
		refunds: ledger.RefundPolicy{FailedPercent: 50, DeviceFault: true},
	})
	if !got.ends() || got.refund != nil || got.removeFinalizer || got.lookAgain != 50*time.Second {
		t.Errorf("%+v", got)
	}
}

// Whoever reports what cannot be is told while it runs; after its end only the refund has something to say.
func TestDecideReport(t *testing.T) {
	metering := allocation(ledger.AllocationMetering)
	for name, c := range map[string]struct {
		pod        []func(*corev1.Pod)
		allocation *ledger.Allocation
		want       string
	}{
		"nothing":              {pods(running), metering, ""},
		"sound":                {pods(running, checkpointed("2026-03-01T12:05:00Z")), metering, ""},
		"in the future":        {pods(running, checkpointed("2026-03-01T13:00:00Z")), metering, "2026-03-01T13:00:00Z lies in the future"},
		"before its start":     {pods(running, checkpointed("2026-03-01T11:00:00Z")), metering, "lies before the pod's start"},
		"no time":              {pods(running, checkpointed("noon")), metering, "no time in RFC 3339"},
		"not started":          {pods(checkpointed("2026-03-01T13:00:00Z")), metering, ""},
		"being deleted":        {pods(running, deleted, checkpointed("noon")), metering, ""},
		"over":                 {pods(finished, checkpointed("noon")), metering, ""},
		"not metered":          {pods(running, checkpointed("noon")), nil, ""},
		"ended":                {pods(running, checkpointed("noon")), allocation(ledger.AllocationEnded), ""},
		"another of its words": {pods(running, func(p *corev1.Pod) { p.Annotations = map[string]string{workload.RestartSecondsAnnotation: "soon"} }), metering, "gpubank.io/restart-seconds is ignored"},
	} {
		t.Run(name, func(t *testing.T) {
			got := decideReport(podFacts{now: at(500), pod: podWith(c.pod...), allocation: c.allocation})
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("says %q, want %q", got, c.want)
			}
		})
	}
}
