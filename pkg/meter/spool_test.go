package meter

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"

	"github.com/gpubank/gpubank/pkg/meter/intakeapi"
)

func openTestSpool(t *testing.T, path string) *Spool {
	t.Helper()
	spool, err := OpenSpool(path, testr.New(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = spool.Close() })
	return spool
}

func everyPod(string) bool { return false }

func testInterval(pod string, minute int) intakeapi.Interval {
	start := second(60 * minute)
	return intakeapi.Interval{
		Key: intakeapi.IntervalKey(pod, start, start.Add(time.Minute)), PodUID: pod, PodStartedAt: second(0),
		Start: start, End: start.Add(time.Minute), GPUUUIDs: []string{"GPU-1"},
	}
}

// fill spools n intervals of each pod, in turns.
func fill(t *testing.T, spool *Spool, n int, pods ...string) {
	t.Helper()
	for minute := range n {
		var decision Decision
		for _, pod := range pods {
			interval := testInterval(pod, minute)
			decision.Intervals = append(decision.Intervals, interval)
			decision.Put = append(decision.Put, Record{PodUID: pod, StartedAt: second(0), LastCut: interval.End})
		}
		if err := spool.Apply(decision); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSpoolKeepsOrderOverReopening(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spool.db")
	spool := openTestSpool(t, path)
	fill(t, spool, 5, "a", "b")
	first, err := spool.Next(3, everyPod)
	if err != nil {
		t.Fatal(err)
	}
	if err := spool.Acknowledge(first[:1]); err != nil {
		t.Fatal(err)
	}
	if err := spool.Close(); err != nil {
		t.Fatal(err)
	}

	spool = openTestSpool(t, path)
	if spool.Depth() != 9 || spool.MovedAside != "" {
		t.Errorf("depth %d after reopening, moved aside %q", spool.Depth(), spool.MovedAside)
	}
	fill(t, spool, 1, "c")
	all, err := spool.Next(100, everyPod)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, interval := range all {
		got = append(got, fmt.Sprint(interval.PodUID, interval.Start.Sub(second(0)).Minutes()))
	}
	if diff := cmp.Diff([]string{"b0", "a1", "b1", "a2", "b2", "a3", "b3", "a4", "b4", "c0"}, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(testInterval("b", 0), all[0].Interval); diff != "" {
		t.Errorf("interval (-want +got):\n%s", diff)
	}
	state := spool.State()
	if diff := cmp.Diff(map[string]int{"a": 4, "b": 5, "c": 1}, state.Pending); diff != "" {
		t.Errorf("pending (-want +got):\n%s", diff)
	}
	if !state.Records["a"].LastCut.Equal(second(300)) {
		t.Errorf("last cut %v", state.Records["a"].LastCut)
	}
	skipped, err := spool.Next(100, func(pod string) bool { return pod != "c" })
	if err != nil || len(skipped) != 1 {
		t.Errorf("%d intervals of pod c, %v", len(skipped), err)
	}
}

// A process that dies leaves the file as its last transaction left it: that copy must open with the same content.
func TestSpoolSurvivesAKill(t *testing.T) {
	folder := t.TempDir()
	spool := openTestSpool(t, filepath.Join(folder, "spool.db"))
	for n := range 20 {
		fill(t, spool, 1, fmt.Sprint("pod-", n))
		content, err := os.ReadFile(filepath.Join(folder, "spool.db"))
		if err != nil {
			t.Fatal(err)
		}
		copied := filepath.Join(folder, fmt.Sprint("copy-", n))
		if err := os.WriteFile(copied, content, 0o600); err != nil {
			t.Fatal(err)
		}
		found := openTestSpool(t, copied)
		if found.Depth() != n+1 || found.MovedAside != "" {
			t.Fatalf("after %d transactions the copy has %d intervals, moved aside %q", n+1, found.Depth(), found.MovedAside)
		}
	}
}

// Whatever happens to the file, the agent starts: with what it held, or with the file moved aside.
func TestDamagedSpoolIsMovedAside(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "spool.db")
	spool := openTestSpool(t, path)
	fill(t, spool, 40, "a", "b", "c")
	if err := spool.Close(); err != nil {
		t.Fatal(err)
	}
	sound, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const page = 4096
	damaged := map[string][]byte{
		"text":  []byte("this was never a spool\n"),
		"zeros": make([]byte, len(sound)),
	}
	for size := page; size < len(sound); size += page {
		damaged[fmt.Sprint("truncated to page ", size/page)] = bytes.Clone(sound[:size])
	}
	for at := 0; at < len(sound); at += page {
		content := bytes.Clone(sound)
		clear(content[at : at+page])
		damaged[fmt.Sprint("page ", at/page, " zeroed")] = content
	}
	flipped := bytes.Clone(sound)
	digit := bytes.Index(flipped, []byte(`"start":"2023`))
	flipped[digit+len(`"start":"202`)] ^= 1
	damaged["a digit of a time flipped"] = flipped

	asides := 0
	for name, content := range damaged {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "spool.db")
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			spool := openTestSpool(t, path)
			if spool.MovedAside == "" {
				// Without its newest meta page the file shows the transaction before, records and intervals alike: what
				// that one lacks is cut again.
				if spool.Depth() != 120 && spool.Depth() != 117 {
					t.Errorf("opened as sound with %d intervals of 120", spool.Depth())
				}
				return
			}
			asides++
			kept, err := os.ReadFile(spool.MovedAside)
			if err != nil || !bytes.Equal(kept, content) {
				t.Errorf("the damaged file is not kept as it was: %v", err)
			}
			if spool.Depth() != 0 {
				t.Errorf("the new spool has %d intervals", spool.Depth())
			}
			fill(t, spool, 1, "a")
		})
	}
	if asides < 3 {
		t.Errorf("only %d of %d damaged files were found out", asides, len(damaged))
	}
}

func TestSpoolErrorsThatAreNotDamage(t *testing.T) {
	if _, err := OpenSpool(filepath.Join(t.TempDir(), "no", "such", "folder"), testr.New(t)); err == nil || errors.Is(err, errDamaged) {
		t.Errorf("a missing folder: %v", err)
	}
	if _, err := OpenSpool(t.TempDir(), testr.New(t)); err == nil || errors.Is(err, errDamaged) {
		t.Errorf("a folder in its place: %v", err)
	}
}
