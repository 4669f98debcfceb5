package meter

import (
	"slices"
	"time"

	"github.com/gpubank/gpubank/pkg/meter/intakeapi"
)

// Settings are the agent's numbers.
type Settings struct {
	// Interval is the distance of the boundaries that held time is cut on; whole seconds, 1 or more.
	Interval time.Duration
	// ConfirmAfter is how long a pod must still be listed after a moment for that moment to count as held. It covers
	// the time a kubelet takes to notice that a container has exited.
	ConfirmAfter time.Duration
	// SpoolLimit and PodLimit bound the intervals waiting for the intake, in all and of one pod.
	SpoolLimit, PodLimit int
	// KeepFinal is how long a pod is still shown in the metrics after its last interval.
	KeepFinal time.Duration
}

// Observation is what one look at the node found.
type Observation struct {
	// At is when the look began, by the steady clock.
	At time.Time
	// Before and After are the node's pods as the API server told them, before the kubelet was asked and after it
	// answered. A pod that is the same in both is the one that the kubelet meant.
	Before, After map[PodName]PodFacts
	// Gone are pods deleted since the last look, as they were last seen.
	Gone []PodFacts
	// Listing is the kubelet's answer; nil if it gave none.
	Listing *Listing
}

// State is what the agent knows before the look.
type State struct {
	Records map[string]Record // by pod UID
	// Pending counts intervals waiting for the intake, by pod UID.
	Pending map[string]int
}

// Decision is what to write, all or nothing, and what to say.
type Decision struct {
	// Put are records that are new or have changed; Forget are pods whose records go.
	Put    []Record
	Forget []string
	// Intervals join the spool's end, in this order.
	Intervals []intakeapi.Interval
	// Unattributed are listed pods that cannot be told from another of the same name.
	Unattributed []ListedPod
	// Vanished are pods that disappeared before their finish was seen. The controller settles them without us.
	Vanished []Record
	// SpoolFull: cutting stopped at a limit. It goes on once intervals are acknowledged.
	SpoolFull bool
}

// Decide turns a look at the node into intervals. It is pure.
func Decide(state State, observed Observation, settings Settings) Decision {
	var decision Decision
	attributed := attribute(state.Records, observed, &decision)
	pending := 0
	for _, n := range state.Pending {
		pending += n
	}

	facts := map[string]PodFacts{}
	for _, pod := range observed.Gone {
		facts[pod.UID] = pod
	}
	for _, pod := range observed.After {
		facts[pod.UID] = pod
	}

	records := map[string]Record{}
	for uid, record := range state.Records {
		records[uid] = record
	}
	for uid, devices := range attributed {
		if _, known := records[uid]; !known {
			records[uid] = Record{PodUID: uid, Devices: devices}
		}
	}
	for _, uid := range sortedKeys(records) {
		before, known := state.Records[uid]
		record := records[uid]
		pod, exists := facts[uid]
		if exists {
			record = refresh(record, pod)
		}
		_, listed := attributed[uid]
		if record.FinalAt.IsZero() {
			held, settled := confirmed(record, pod, exists, listed, observed.At, settings)
			room := settings.PodLimit
			if record.Reported {
				room = max(0, min(settings.PodLimit-state.Pending[uid], settings.SpoolLimit-pending))
			}
			spans := Cut(held, record.LastCut, observed.At, settings.Interval, room)
			if record.Reported {
				decision.Intervals = append(decision.Intervals, intervalsOf(record, spans)...)
				pending += len(spans)
			}
			if len(spans) > 0 {
				record.LastCut = spans[len(spans)-1].End
			}
			decision.SpoolFull = decision.SpoolFull || record.Reported && len(spans) == room
			if settled && !record.LastCut.Before(held.Until) {
				record.FinalAt = observed.At
				if !exists || !pod.Held.Ended {
					decision.Vanished = append(decision.Vanished, record)
				}
			}
		} else if state.Pending[uid] == 0 && observed.At.Sub(record.FinalAt) >= settings.KeepFinal && !listed {
			// Some kubelets list a finished pod for as long as it exists; forgotten, it would be cut anew (L32).
			decision.Forget = append(decision.Forget, uid)
			continue
		}
		if !known || !same(before, record) {
			decision.Put = append(decision.Put, record)
		}
	}
	return decision
}

// attribute finds the pods that the listed devices belong to. It never guesses: a device whose pod is not certain is
// unattributed (G31, G34).
func attribute(records map[string]Record, observed Observation, decision *Decision) map[string][]HeldDevice {
	attributed := map[string][]HeldDevice{}
	if observed.Listing == nil {
		return attributed
	}
	named := map[PodName]int{}
	for _, listed := range observed.Listing.Pods {
		named[listed.Name]++
	}
	for _, listed := range observed.Listing.Pods {
		before, after := observed.Before[listed.Name], observed.After[listed.Name]
		// The kubelet writes a pod's start only after it has let go of an earlier pod of that name, so a pod that had
		// started before the question, and is still there after the answer, is the one in the answer.
		certain := named[listed.Name] == 1 && before.UID != "" && before.UID == after.UID && !before.Held.Start.IsZero()
		// A pod keeps the devices it was admitted with. Others under its name are another pod's, which the API server
		// has not told us of yet.
		if record, known := records[before.UID]; certain && known {
			certain = slices.Equal(record.DeviceIDs(), listed.DeviceIDs)
		}
		if !certain {
			decision.Unattributed = append(decision.Unattributed, listed)
			continue
		}
		attributed[before.UID] = heldDevices(listed.DeviceIDs, observed.Listing.Replicas)
	}
	return attributed
}

// refresh takes over what the API server says of the pod.
func refresh(record Record, pod PodFacts) Record {
	record.PodUID, record.Name = pod.UID, pod.Name
	if pod.Account != "" {
		record.Account = pod.Account
	}
	if pod.Class != "" {
		record.Class = pod.Class
	}
	if record.StartedAt.IsZero() {
		record.StartedAt, record.LastCut = pod.Held.Start, pod.Held.Start
	}
	if pod.Enrolled && !record.Reported {
		// Enrolled late: what was only shown so far is reported from the pod's start.
		record.Reported, record.LastCut, record.FinalAt = true, record.StartedAt, time.Time{}
	}
	return record
}

// confirmed is how far the record's held time is certain. settled: it will never become more.
func confirmed(record Record, pod PodFacts, exists, listed bool, at time.Time, settings Settings) (held Held, settled bool) {
	held = Held{Start: record.StartedAt, Until: record.LastCut}
	switch {
	case !exists:
		return held, true
	case pod.Held.NeverHeld():
		return held, true
	case pod.Held.Ended && !pod.Held.End.IsZero():
		return Held{Start: record.StartedAt, Until: pod.Held.End, Ended: true}, true
	case pod.Held.Ended:
		return held, true
	case listed:
		if until := at.Add(-settings.ConfirmAfter); until.After(held.Until) {
			held.Until = until
		}
	}
	return held, false
}

func intervalsOf(record Record, spans []Span) []intakeapi.Interval {
	intervals := make([]intakeapi.Interval, 0, len(spans))
	ids := record.DeviceIDs()
	for _, span := range spans {
		intervals = append(intervals, intakeapi.Interval{
			Key:          intakeapi.IntervalKey(record.PodUID, span.Start, span.End),
			PodUID:       record.PodUID,
			PodStartedAt: record.StartedAt,
			Start:        span.Start,
			End:          span.End,
			GPUUUIDs:     ids,
		})
	}
	return intervals
}

// same compares what can change in a record.
func same(a, b Record) bool {
	return a.Account == b.Account && a.Class == b.Class && a.Reported == b.Reported &&
		a.StartedAt.Equal(b.StartedAt) && a.LastCut.Equal(b.LastCut) && a.FinalAt.Equal(b.FinalAt)
}

func sortedKeys(records map[string]Record) []string {
	keys := make([]string, 0, len(records))
	for key := range records {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
