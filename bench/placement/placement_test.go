package placement

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpubank/gpubank/bench/report"
	"github.com/gpubank/gpubank/pkg/placement"
)

// A made-up cluster and trace in the public files' format: eight nodes of two models, pods of all sizes.
func writeFolder(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	nodes := "sn,cpu_milli,memory_mib,gpu,model\n"
	for i := range 6 {
		nodes += fmt.Sprintf("big-%d,96000,393216,8,G2\n", i)
	}
	nodes += "small-0,16000,122880,2,P100\nsmall-1,16000,122880,2,P100\n"
	pods := "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
	random := rand.New(rand.NewPCG(1, 1))
	for i := range 60 {
		kinds := []string{
			"11300,49152,1,1000,", "3152,5600,1,810,", "8000,30517,1,470,", "4000,15258,1,320,P100|G2",
			"8000,16384,1,1000,P100", "64000,262144,8,1000,G2", "16000,65536,2,1000,", "12500,57344,0,0,",
		}
		pods += fmt.Sprintf("pod-%d,%s\n", i, kinds[random.IntN(len(kinds))])
	}
	write(t, filepath.Join(folder, nodeFile), nodes)
	write(t, filepath.Join(folder, podPrefix+"made_up.csv"), pods)
	return folder
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// The whole benchmark, small, with outcomes that a file of the folder adds.
func TestRunWritesFiguresAndDrawing(t *testing.T) {
	folder, out := writeFolder(t), t.TempDir()
	write(t, filepath.Join(folder, publishedFile), "trace,policy,seeds,a,b\nopenb_pod_list_made_up,FGD,10,50.00,60.00\n")
	var said strings.Builder
	err := Run(t.Context(), out, Options{Folder: folder, Seeds: 3, Progress: func(line string) { fmt.Fprintln(&said, line) }})
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(out, "placement.json"))
	if err != nil {
		t.Fatal(err)
	}
	var written report.Report
	if err := json.Unmarshal(content, &written); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, figure := range written.Figures {
		names = append(names, figure.Name)
		if figure.Value <= 0 || figure.Value > 100 || figure.Runs != 3 && !strings.Contains(figure.Name, "random") {
			t.Errorf("%+v", figure)
		}
	}
	want := "openb_made_up_100 openb_made_up_130 calibration_made_up_random_100 calibration_made_up_random_130 calibration_made_up_bestfit_100 calibration_made_up_bestfit_130"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("figures\n%s, want\n%s", got, want)
	}
	if first := written.Figures[0]; first.AgainstValue != 50 || first.Ratio <= 1 {
		t.Errorf("against: %+v", first)
	}
	drawn, err := os.ReadFile(filepath.Join(out, "placement.svg"))
	if err != nil {
		t.Fatal(err)
	}
	decoder := xml.NewDecoder(strings.NewReader(string(drawn)))
	bars := 0
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, drawn)
		}
		if element, ok := token.(xml.StartElement); ok && element.Name.Local == "rect" {
			bars++
		}
	}
	if bars != 1+4 { // the background; Random, BestFit, FGD, ours
		t.Errorf("%d rectangles in\n%s", bars, drawn)
	}
	for _, part := range []string{"made_up      gpubank*", "* against published FGD: +", "█"} {
		if !strings.Contains(said.String(), part) {
			t.Errorf("%q is not in\n%s", part, said.String())
		}
	}
}

func TestMiscalibratedHarnessWritesNothing(t *testing.T) {
	folder, out := writeFolder(t), t.TempDir()
	write(t, filepath.Join(folder, publishedFile), "trace,policy,seeds,a,b\nopenb_pod_list_made_up,BestFit,10,12.00,13.00\n")
	err := Run(t.Context(), out, Options{Folder: folder, Seeds: 1})
	if err == nil || !strings.Contains(err.Error(), "published 12.00 %") {
		t.Fatalf("got %v", err)
	}
	if entries, _ := os.ReadDir(out); len(entries) > 0 {
		t.Errorf("wrote %v", entries)
	}
}

func TestMissingDataSaysWhereToFindIt(t *testing.T) {
	folder := writeFolder(t)
	for _, tc := range []struct{ folder, traces, want string }{
		{"", "", "OPENB_DIR is not set"},
		{t.TempDir(), "", PublicSource},
		{folder, "default", `there is no trace "default" in OPENB_DIR=` + folder + "; there are: made_up"},
	} {
		if _, err := Load(tc.folder, tc.traces); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("Load(%q, %q): %v; want %q in it", tc.folder, tc.traces, err, tc.want)
		}
	}
}

func TestBadRowIsNamed(t *testing.T) {
	folder := writeFolder(t)
	write(t, filepath.Join(folder, podPrefix+"bad.csv"), "name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,1,1000\nb,-5,1,1,1000\n")
	if _, err := Load(folder, "bad"); err == nil || !strings.Contains(err.Error(), `line 3: column cpu_milli is "-5"`) {
		t.Error(err)
	}
}

// Every pod of the trace arrives at least once, and only as many more as the protocol says.
func TestSubmitFollowsTheProtocol(t *testing.T) {
	traces, err := Load(writeFolder(t), "openb_pod_list_made_up")
	if err != nil {
		t.Fatal(err)
	}
	trace := traces[0]
	for seed := range uint64(20) {
		pods := Submit(trace, rand.New(rand.NewPCG(seed, 0)))
		left := map[placement.Request]int{}
		for _, pod := range trace.Pods {
			left[pod]++
		}
		var requested, largest int64
		for _, pod := range pods {
			left[pod]--
			requested += pod.MilliGPU()
			largest = max(largest, pod.MilliGPU())
		}
		for pod, count := range left {
			if count > 0 {
				t.Errorf("seed %d: %d of %+v are missing", seed, count, pod)
			}
		}
		if want := trace.MilliGPU() * 130 / 100; requested < want || len(pods) > len(trace.Pods) && requested >= want+largest {
			t.Errorf("seed %d: %d requested, want %d", seed, requested, want)
		}
	}
}

// What a replay reports is what is missing from the nodes, and a policy repeated does the same again.
func TestReplayAccountsForEveryDevice(t *testing.T) {
	traces, err := Load(writeFolder(t), "")
	if err != nil {
		t.Fatal(err)
	}
	trace := traces[0]
	for _, policy := range policies {
		var outcomes [2]Outcome
		for run := range outcomes {
			pods := Submit(trace, rand.New(rand.NewPCG(7, 0)))
			outcome, nodes := Replay(trace, pods, policy.newFor(trace, rand.New(rand.NewPCG(7, 1))))
			var free int64
			for i := range nodes {
				free += nodes[i].MilliGPU()
				if nodes[i].MilliCPU < 0 || nodes[i].MemoryMiB < 0 {
					t.Errorf("%s: node %d is overcommitted: %+v", policy.name, i, nodes[i])
				}
			}
			if got := 100 * float64(trace.MilliGPU()-free) / float64(trace.MilliGPU()); got != outcome[1] {
				t.Errorf("%s: %.3f %% taken, %.3f %% reported", policy.name, got, outcome[1])
			}
			outcomes[run] = outcome
		}
		if outcomes[0] != outcomes[1] {
			t.Errorf("%s: %v, then %v", policy.name, outcomes[0], outcomes[1])
		}
	}
}
