package auditor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// gapMost is how far a pod's metering may be behind that of its node's other pods: ten intervals of an agent at its default of one
// minute. An agent that was away catches up with all of them at once.
const gapMost = 10 * time.Minute

// sides are what everyone says at one moment.
type sides struct {
	// open are the ledger's allocations that may hold GPUs, from scheduler and node agents.
	open []ledger.MeteredAllocation
	// pods are the API server's that ask for GPUs, by UID.
	pods  map[string]podSide
	nodes map[string]nodeSide
	// ended are the ledger's allocations that are over, of pods that are not.
	ended map[string]ledger.Allocation
}

// podSide is a pod as the API server shows it.
type podSide struct {
	name string // namespace/name
	node string // empty while it is not bound
	// gpus is how many it asks for; 0 if that cannot be told.
	gpus int64
	// holds: it was started and is not over. over: no container of it runs or will run, since overAt if that is known.
	holds, over bool
	startedAt   time.Time
	overAt      time.Time
	// account pays for its namespace; empty for none.
	account string
}

// nodeSide is how many GPUs of each class the node says that it has.
type nodeSide struct{ gpus map[string]int64 }

// compare lists what the sides disagree about, in a fixed order. Anything may disagree for a moment while it changes; see settle.
func compare(s sides) []ledger.Discrepancy {
	var found []ledger.Discrepancy
	for _, a := range s.open {
		if pod, exists := s.pods[a.PodUID]; exists {
			found = append(found, comparePod(a, pod)...)
		} else if a.State != ledger.AllocationIntended {
			found = append(found, about(a, ledger.OpenAfterPod, "gone", stateOf(a), "the API server has no such pod"))
		}
		found = append(found, compareGPUs(a)...)
	}
	found = append(found, compareGaps(s.open)...)
	found = append(found, compareNodes(s)...)
	found = append(found, compareUnallocated(s)...)
	slices.SortStableFunc(found, func(a, b ledger.Discrepancy) int { return strings.Compare(a.Key, b.Key) })
	return found
}

func about(a ledger.MeteredAllocation, kind ledger.DiscrepancyKind, what, ledgerSays, otherSays string) ledger.Discrepancy {
	return ledger.Discrepancy{
		Key: "compared:" + string(kind) + ":" + a.PodUID + ":" + what, Kind: kind, PodUID: a.PodUID, Account: a.Account,
		Ledger: ledgerSays, Other: otherSays,
	}
}

func stateOf(a ledger.MeteredAllocation) string {
	return fmt.Sprintf("%s on node %s since %s with %d GPUs", a.State, a.Node, at(a.IntendedAt), a.GPUs)
}

// comparePod compares an allocation with its pod's spec and status.
func comparePod(a ledger.MeteredAllocation, pod podSide) (found []ledger.Discrepancy) {
	if pod.over {
		return append(found, about(a, ledger.OpenAfterPod, "over", stateOf(a), "the pod is over since "+at(pod.overAt)))
	}
	if pod.node != "" && pod.node != a.Node {
		found = append(found, about(a, ledger.NodeDiffers, pod.node, stateOf(a), "the pod is bound to node "+pod.node))
	}
	if pod.gpus != 0 && pod.gpus != a.GPUs {
		found = append(found, about(a, ledger.GPUCountDiffers, fmt.Sprint(pod.gpus), stateOf(a), fmt.Sprintf("the pod asks for %d GPUs", pod.gpus)))
	}
	return found
}

// compareGPUs compares the GPUs that the node named first with all that it named.
func compareGPUs(a ledger.MeteredAllocation) []ledger.Discrepancy {
	for _, gpu := range a.MeteredGPUs {
		if len(a.GPUUUIDs) > 0 && !slices.Contains(a.GPUUUIDs, gpu) {
			return []ledger.Discrepancy{about(a, ledger.GPUsDiffer, gpu,
				"first metered on "+strings.Join(a.GPUUUIDs, " "), "metered on "+strings.Join(a.MeteredGPUs, " "))}
		}
	}
	return nil
}

// compareGaps looks for pods that their node's agent has stopped to report while it reports others.
func compareGaps(open []ledger.MeteredAllocation) (found []ledger.Discrepancy) {
	latest := make(map[string]ledger.MeteredAllocation) // by node, the one that was metered last
	for _, a := range open {
		if a.MeteredUntil.After(latest[a.Node].MeteredUntil) {
			latest[a.Node] = a
		}
	}
	for _, a := range open {
		other, from := latest[a.Node], a.MeteredUntil
		if from.IsZero() {
			from = a.StartedAt
		}
		if a.State != ledger.AllocationMetering || from.IsZero() || other.MeteredUntil.Sub(from) <= gapMost {
			continue
		}
		found = append(found, about(a, ledger.MeteringGap, fmt.Sprint(from.UnixMicro()),
			fmt.Sprintf("%s; started %s, metered until %s", stateOf(a), at(a.StartedAt), at(a.MeteredUntil)),
			fmt.Sprintf("the agent of node %s has metered pod %s until %s", a.Node, other.PodUID, at(other.MeteredUntil))))
	}
	return found
}

// compareNodes looks for nodes on which more GPUs are allocated than they have. It is laid to the allocation that was one too
// many, the youngest ones first.
func compareNodes(s sides) (found []ledger.Discrepancy) {
	type place struct{ node, class string }
	taken := make(map[place]int64)
	for _, a := range s.open { // oldest first
		node, known := s.nodes[a.Node]
		has := node.gpus[a.Class]
		if !known || has == 0 || a.State == ledger.AllocationIntended { // an intent takes nothing yet
			continue
		}
		at := place{a.Node, a.Class}
		before := taken[at]
		taken[at] += a.GPUs
		if taken[at] > has && before <= has {
			found = append(found, about(a, ledger.NodeOvercommitted, a.Node,
				fmt.Sprintf("%s, and %d of class %s in allocations before it", stateOf(a), before, a.Class),
				fmt.Sprintf("node %s has %d GPUs of class %s", a.Node, has, a.Class)))
		}
	}
	return found
}

// compareUnallocated looks for pods that hold GPUs, in somebody's namespace, and have no open allocation.
func compareUnallocated(s sides) (found []ledger.Discrepancy) {
	open := make(map[string]bool, len(s.open))
	for _, a := range s.open {
		open[a.PodUID] = true
	}
	for uid, pod := range s.pods {
		if !pod.holds || pod.account == "" || open[uid] {
			continue
		}
		says, account := "no allocation", pod.account
		if ended, known := s.ended[uid]; known {
			says, account = fmt.Sprintf("%s on node %s at %s", ended.State, ended.Node, at(ended.EndedAt)), ended.Account
		}
		found = append(found, ledger.Discrepancy{
			Key: "compared:" + string(ledger.RunsUnallocated) + ":" + uid, Kind: ledger.RunsUnallocated, PodUID: uid, Account: account,
			Ledger: says, Other: fmt.Sprintf("pod %s holds %d GPUs of node %s since %s", pod.name, pod.gpus, pod.node, at(pod.startedAt)),
		})
	}
	return found
}

// settle tells what lasts from what is only on its way: disagreements that every comparison has found for as long as settleTime.
// since says since when each is found, and is what the next round needs.
func settle(since map[string]time.Time, found []ledger.Discrepancy, now time.Time, settleTime time.Duration) (keep []ledger.Discrepancy, next map[string]time.Time) {
	next = make(map[string]time.Time, len(found))
	for _, d := range found {
		first, known := since[d.Key]
		if !known {
			first = now
		}
		next[d.Key] = first
		if now.Sub(first) >= settleTime {
			d.FoundAt = ledger.Instant(now)
			keep = append(keep, d)
		}
	}
	return keep, next
}

func at(t time.Time) string {
	if t.IsZero() {
		return "(unknown)"
	}
	return t.UTC().Format(time.RFC3339)
}
