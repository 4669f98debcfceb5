package meter

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gpubank/gpubank/pkg/workload"
)

// life is a pod's true history, in seconds. Its object goes away at deleted.
type life struct {
	uid                 string
	start, end, deleted int
	devices             []string
}

const epoch = 1_700_000_000

func second(n int) time.Time { return time.Unix(epoch+int64(n), 0).UTC() }

// seenAt is what a watch that has come as far as second t shows of the pod.
func (l life) seenAt(t int) (PodFacts, bool) {
	facts := PodFacts{UID: l.uid, Name: PodName{"default", "train"}, Account: "team", Enrolled: true}
	if t < l.start-1 || t >= l.deleted {
		return facts, false
	}
	if t >= l.start {
		facts.Held.Start = second(l.start)
	}
	if t >= l.end {
		facts.Held = workload.HeldTime{Start: second(l.start), Ended: true, End: second(l.end)}
	}
	return facts, true
}

// Two pods of one name, one after the other and perhaps on the same devices; a watch and a kubelet that lag, an agent
// that dies before or after it has written, loses its spool, or waits for the intake. Whatever happens, no time is cut
// that was not held, none twice, none for the wrong pod, without holes; and nothing is missing of a pod whose finish was
// seen.
func TestWhateverHappensHeldTimeIsCutOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		settings := Settings{Interval: 7 * time.Second, ConfirmAfter: 5 * time.Second, SpoolLimit: 40, PodLimit: 6, KeepFinal: time.Hour}
		lag := int(settings.ConfirmAfter / time.Second)
		number := func(name string, from, to int) int { return rapid.IntRange(from, to).Draw(t, name) }

		a := life{uid: "a", start: 3 + number("start", 0, 20), devices: []string{"GPU-1"}}
		a.end = a.start + number("held", 0, 60)
		a.deleted = a.end + number("kept", 1, 20)
		b := life{uid: "b", start: a.deleted + number("pause", 1, 10), devices: []string{rapid.SampledFrom([]string{"GPU-1", "GPU-2"}).Draw(t, "device")}}
		b.end = b.start + number("held", 0, 60)
		b.deleted = b.end + 1_000_000
		pods := []life{a, b}

		state := State{Records: map[string]Record{}, Pending: map[string]int{}}
		cuts := map[string]map[string]Span{} // what the ledger has: by pod, keys are the intervals' own
		gone := map[string]PodFacts{}
		finishSeen := map[string]bool{}
		spoolLost := false
		watched := 0 // how far the watch has come
		restarted := true
		seen := func(t int) map[PodName]PodFacts {
			shown := map[PodName]PodFacts{}
			for _, pod := range pods {
				if facts, exists := pod.seenAt(t); exists {
					shown[facts.Name] = facts
				}
			}
			return shown
		}
		follow := func(to int) {
			for _, pod := range pods {
				before, was := pod.seenAt(watched)
				if _, is := pod.seenAt(to); was && !is && !restarted {
					if last, existed := pod.seenAt(pod.deleted - 1); existed {
						before = last // the deletion carries the last state
					}
					gone[pod.uid] = before
				}
			}
			watched = to
		}
		look := func(now int, kubeletAnswers, written bool) {
			follow(max(watched, now-number("watch lag before", 0, lag)))
			restarted = false
			observed := Observation{At: second(now), Before: seen(watched)}
			if kubeletAnswers {
				observed.Listing = &Listing{}
				for _, pod := range pods {
					if now >= pod.start && now < min(pod.end+number("exit noticed after", 0, lag), pod.deleted) {
						observed.Listing.Pods = append(observed.Listing.Pods, ListedPod{PodName{"default", "train"}, pod.devices})
					}
				}
			}
			follow(max(watched, now-number("watch lag after", 0, lag)))
			observed.After = seen(watched)
			for _, facts := range gone {
				observed.Gone = append(observed.Gone, facts)
			}
			decision := Decide(state, observed, settings)
			if !written {
				return
			}
			gone = map[string]PodFacts{}
			for _, record := range decision.Put {
				state.Records[record.PodUID] = record
				finishSeen[record.PodUID] = !record.FinalAt.IsZero()
			}
			for _, lost := range decision.Vanished {
				finishSeen[lost.PodUID] = false
			}
			for _, interval := range decision.Intervals {
				state.Pending[interval.PodUID]++
				if cuts[interval.PodUID] == nil {
					cuts[interval.PodUID] = map[string]Span{}
				}
				cuts[interval.PodUID][interval.Key] = Span{interval.Start, interval.End}
			}
		}

		now := 0
		for range number("steps", 1, 60) {
			now += number("pause", 0, 9)
			switch number("what", 0, 9) {
			case 0: // dies, and starts later
				now += number("down", 0, 40)
				restarted, gone = true, map[string]PodFacts{}
			case 1: // dies after deciding
				look(now, true, false)
				restarted, gone = true, map[string]PodFacts{}
			case 2:
				state, spoolLost = State{Records: map[string]Record{}, Pending: map[string]int{}}, true
			case 3:
				look(now, false, true)
			case 4:
				state.Pending = map[string]int{}
			default:
				look(now, true, true)
			}
		}
		for range 40 { // the dust settles
			now += 2*lag + 1
			look(now, true, true)
			state.Pending = map[string]int{}
		}

		for _, pod := range pods {
			covered := map[int]int{}
			for _, span := range cuts[pod.uid] {
				for s := span.Start.Unix(); s < span.End.Unix(); s++ {
					covered[int(s-epoch)]++
				}
			}
			for s, times := range covered {
				if s < pod.start || s >= pod.end || times != 1 {
					t.Fatalf("second %d of pod %s, which held [%d, %d), is cut %d times: %v", s, pod.uid, pod.start, pod.end, times, cuts[pod.uid])
				}
			}
			if !spoolLost && len(covered) > 0 && covered[pod.start] == 0 {
				t.Fatalf("pod %s is not cut from its start %d: %v", pod.uid, pod.start, cuts[pod.uid])
			}
			if finishSeen[pod.uid] && len(covered) != pod.end-pod.start {
				t.Fatalf("pod %s held [%d, %d), of which %d s are cut: %s", pod.uid, pod.start, pod.end, len(covered), fmt.Sprint(cuts[pod.uid]))
			}
		}
	})
}
