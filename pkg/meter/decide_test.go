package meter

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpubank/gpubank/pkg/meter/intakeapi"
	"github.com/gpubank/gpubank/pkg/workload"
)

var settings = Settings{Interval: time.Minute, ConfirmAfter: 10 * time.Second, SpoolLimit: 100, PodLimit: 50, KeepFinal: 10 * time.Minute}

// running and ended are pods named default/train of account team.
func running(uid, start string) PodFacts {
	return PodFacts{
		UID: uid, Name: PodName{"default", "train"}, Account: "team", Class: "h100", Enrolled: true,
		Held: workload.HeldTime{Start: at(start)},
	}
}

func ended(uid, start, end string) PodFacts {
	pod := running(uid, start)
	pod.Held.Ended, pod.Held.End = true, at(end)
	return pod
}

func view(pods ...PodFacts) map[PodName]PodFacts {
	byName := map[PodName]PodFacts{}
	for _, pod := range pods {
		byName[pod.Name] = pod
	}
	return byName
}

func lists(ids ...string) *Listing {
	return &Listing{Pods: []ListedPod{{PodName{"default", "train"}, ids}}}
}

// record is what is left of a pod after looks at it.
func record(uid, start, lastCut string, ids ...string) Record {
	return Record{
		PodUID: uid, Name: PodName{"default", "train"}, Account: "team", Class: "h100", Reported: true,
		StartedAt: at(start), LastCut: at(lastCut), Devices: heldDevices(ids, nil),
	}
}

func known(records ...Record) State {
	state := State{Records: map[string]Record{}, Pending: map[string]int{}}
	for _, record := range records {
		state.Records[record.PodUID] = record
	}
	return state
}

// cut tells intervals as "uid start-end".
func cut(intervals []intakeapi.Interval) []string {
	var told []string
	for _, interval := range intervals {
		told = append(told, interval.PodUID+" "+interval.Start.Format("15:04:05")+"-"+interval.End.Format("15:04:05"))
	}
	return told
}

func TestDecide(t *testing.T) {
	a := running("a", "10:00:07")
	for name, test := range map[string]struct {
		state        State
		observed     Observation
		want         []string
		unattributed int
		vanished     int
	}{
		"first sight of a pod that runs for a while": {
			observed: Observation{At: at("10:02:10"), Before: view(a), After: view(a), Listing: lists("GPU-1")},
			want:     []string{"a 10:00:07-10:01:00", "a 10:01:00-10:02:00"},
		},
		"the latest seconds are not confirmed yet": {
			observed: Observation{At: at("10:02:09"), Before: view(a), After: view(a), Listing: lists("GPU-1")},
			want:     []string{"a 10:00:07-10:01:00"},
		},
		"a silent kubelet confirms nothing": {
			state:    known(record("a", "10:00:07", "10:01:00", "GPU-1")),
			observed: Observation{At: at("10:05:00"), Before: view(a), After: view(a)},
		},
		"its finish is enough": {
			state:    known(record("a", "10:00:07", "10:01:00", "GPU-1")),
			observed: Observation{At: at("10:05:00"), Before: view(a), After: view(ended("a", "10:00:07", "10:02:30"))},
			want:     []string{"a 10:01:00-10:02:00", "a 10:02:00-10:02:30"},
		},
		"L32: a finished pod that the kubelet still lists": {
			state:    known(record("a", "10:00:07", "10:01:00", "GPU-1")),
			observed: Observation{At: at("10:09:00"), Before: view(ended("a", "10:00:07", "10:01:30")), After: view(ended("a", "10:00:07", "10:01:30")), Listing: lists("GPU-1")},
			want:     []string{"a 10:01:00-10:01:30"},
		},
		"finish and deletion between two looks": {
			state:    known(record("a", "10:00:07", "10:01:00", "GPU-1")),
			observed: Observation{At: at("10:05:00"), Gone: []PodFacts{ended("a", "10:00:07", "10:01:30")}, Listing: &Listing{}},
			want:     []string{"a 10:01:00-10:01:30"},
		},
		"a pod that vanished is not made longer": {
			state:    known(record("a", "10:00:07", "10:01:00", "GPU-1")),
			observed: Observation{At: at("10:05:00"), Listing: &Listing{}},
			vanished: 1,
		},
		"an unknown end counts as far as it is vouched for": {
			state: known(record("a", "10:00:07", "10:01:00", "GPU-1")),
			observed: Observation{At: at("10:05:00"), Listing: &Listing{}, After: view(PodFacts{
				UID: "a", Name: a.Name, Enrolled: true,
				Held: workload.HeldTime{Start: at("10:00:07"), Ended: true, EndUnknown: true, End: at("10:01:20")},
			})},
			want: []string{"a 10:01:00-10:01:20"},
		},
		"E26: the kubelet rejected it": {
			observed: Observation{At: at("10:05:00"), After: view(PodFacts{UID: "a", Name: a.Name, Enrolled: true, Held: workload.HeldTime{Ended: true}}), Listing: &Listing{}},
		},
		"G34: recreated under the same name, not started": {
			state:        known(record("a", "10:00:07", "10:01:00", "GPU-1")),
			observed:     Observation{At: at("10:05:00"), Before: view(PodFacts{UID: "b", Name: a.Name}), After: view(running("b", "10:04:00")), Gone: []PodFacts{ended("a", "10:00:07", "10:01:30")}, Listing: lists("GPU-1")},
			want:         []string{"a 10:01:00-10:01:30"},
			unattributed: 1,
		},
		"G34: recreated under the same name while the kubelet answered": {
			state:        known(record("a", "10:00:07", "10:01:00", "GPU-1")),
			observed:     Observation{At: at("10:05:00"), Before: view(a), After: view(running("b", "10:04:00")), Gone: []PodFacts{ended("a", "10:00:07", "10:01:30")}, Listing: lists("GPU-1")},
			want:         []string{"a 10:01:00-10:01:30"},
			unattributed: 1,
		},
		"G34: other devices under a known pod's name": {
			state:        known(record("a", "10:00:07", "10:01:00", "GPU-1")),
			observed:     Observation{At: at("10:05:00"), Before: view(a), After: view(a), Listing: lists("GPU-2")},
			unattributed: 1,
		},
		"G31: a pod the API server has not told us of": {
			observed:     Observation{At: at("10:05:00"), Listing: lists("GPU-1")},
			unattributed: 1,
		},
		"two of one name": {
			observed: Observation{At: at("10:05:00"), Before: view(a), After: view(a), Listing: &Listing{Pods: []ListedPod{
				{a.Name, []string{"GPU-1"}}, {a.Name, []string{"GPU-2"}},
			}}},
			unattributed: 2,
		},
		"not gpubank's pod": {
			observed: Observation{At: at("10:05:00"), Before: view(foreign(a)), After: view(foreign(a)), Listing: lists("GPU-1")},
		},
		"enrolled later": {
			state:    known(unreported(record("a", "10:00:07", "10:01:00", "GPU-1"))),
			observed: Observation{At: at("10:02:15"), Before: view(a), After: view(a), Listing: lists("GPU-1")},
			want:     []string{"a 10:00:07-10:01:00", "a 10:01:00-10:02:00"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := Decide(test.state, test.observed, settings)
			if diff := cmp.Diff(test.want, cut(got.Intervals)); diff != "" {
				t.Errorf("intervals (-want +got):\n%s", diff)
			}
			if len(got.Unattributed) != test.unattributed || len(got.Vanished) != test.vanished {
				t.Errorf("%d unattributed, %d vanished; want %d and %d", len(got.Unattributed), len(got.Vanished), test.unattributed, test.vanished)
			}
		})
	}
}

func foreign(pod PodFacts) PodFacts {
	pod.Account, pod.Enrolled = "", false
	return pod
}

func unreported(record Record) Record {
	record.Reported = false
	return record
}

// A full spool stops the cutting; what was not cut is cut once there is room, in the same pieces.
func TestDecideAtTheLimit(t *testing.T) {
	a := running("a", "10:00:07")
	state := known(record("a", "10:00:07", "10:01:00", "GPU-1"))
	observed := Observation{At: at("10:30:10"), Before: view(a), After: view(a), Listing: lists("GPU-1")}
	state.Pending["other"] = settings.SpoolLimit - 2
	got := Decide(state, observed, settings)
	if diff := cmp.Diff([]string{"a 10:01:00-10:02:00", "a 10:02:00-10:03:00"}, cut(got.Intervals)); diff != "" || !got.SpoolFull {
		t.Errorf("intervals with room for two (-want +got), full %v:\n%s", got.SpoolFull, diff)
	}
	state.Pending["other"] = 0
	state.Records["a"] = got.Put[0]
	if got := Decide(state, observed, settings); len(got.Intervals) != 27 || cut(got.Intervals)[0] != "a 10:03:00-10:04:00" || got.SpoolFull {
		t.Errorf("%d intervals with room again, from %v, full %v", len(got.Intervals), cut(got.Intervals)[0], got.SpoolFull)
	}
}

func TestDecideForgets(t *testing.T) {
	final := record("a", "10:00:07", "10:01:00", "GPU-1")
	final.FinalAt = at("10:01:05")
	for name, test := range map[string]struct {
		pending int
		now     string
		listing *Listing
		want    int
	}{
		"still shown":          {0, "10:11:04", &Listing{}, 0},
		"shown long enough":    {0, "10:11:05", &Listing{}, 1},
		"not yet acknowledged": {1, "11:00:00", &Listing{}, 0},
		"still listed (L32)":   {0, "11:00:00", lists("GPU-1"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			state := known(final)
			state.Pending["a"] = test.pending
			pods := view(ended("a", "10:00:07", "10:01:00"))
			got := Decide(state, Observation{At: at(test.now), Before: pods, After: pods, Listing: test.listing}, settings)
			if len(got.Forget) != test.want || len(got.Intervals) != 0 {
				t.Errorf("forgets %v, cuts %v", got.Forget, cut(got.Intervals))
			}
		})
	}
}

// G33: the shares of a time-sliced device add up to the device.
func TestShares(t *testing.T) {
	replicas := map[string]int{"GPU-1": 4, "GPU-2": 1}
	total := 0.0
	for _, ids := range [][]string{{"GPU-1::0", "GPU-1::3"}, {"GPU-1::1"}, {"GPU-1::2", "GPU-2"}} {
		for _, device := range heldDevices(ids, replicas) {
			if device.UUID == "GPU-1" {
				total += device.Share()
			} else if device.Share() != 1 {
				t.Errorf("a whole device counts as %v", device.Share())
			}
		}
	}
	if total != 1 {
		t.Errorf("the shares of GPU-1 add up to %v", total)
	}
}
