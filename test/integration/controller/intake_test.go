package controller_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/meter/intakeapi"
	"github.com/gpubank/gpubank/test/cluster"
)

// agent is an intake client with a token of a service account, bound to a pod on a node unless node is empty.
func (s *suite) agent(t *testing.T, account types.NamespacedName, node, audience string) *intakeapi.Client {
	t.Helper()
	ctx := t.Context()
	options := cluster.TokenOptions{Audience: audience}
	if node != "" {
		pod := types.NamespacedName{Namespace: account.Namespace, Name: account.Name + "-" + node}
		if err := s.CreatePodOnNode(ctx, pod, account.Name, node); err != nil && !strings.Contains(err.Error(), "already exists") {
			t.Fatal(err)
		}
		options.Pod = pod.Name
	}
	token, err := s.ServiceAccountToken(ctx, account, options)
	must(t, err)
	published := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: "intake-ca"}}
	must(t, s.get(ctx, published))
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "ca.crt"), []byte(published.Data["ca.crt"]), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "token"), []byte(token), 0o600))
	agent, err := intakeapi.NewClient(intakeapi.ClientOptions{URL: s.intakeURL, CAFile: filepath.Join(dir, "ca.crt"), TokenFile: filepath.Join(dir, "token")})
	must(t, err)
	return agent
}

var exporter = types.NamespacedName{Namespace: v1alpha1.SystemNamespace, Name: "nvml-exporter"}

func testIntake(t *testing.T, s *suite) {
	s.node(t, "meter-1", time.Now())
	s.node(t, "meter-2", time.Now())
	t.Run("only the node's own agent", func(t *testing.T) { testIntakeRefusals(t, s) })
	t.Run("charges", func(t *testing.T) { testIntakeCharges(t, s) })
}

func testIntakeRefusals(t *testing.T, s *suite) {
	for _, test := range []struct {
		name    string
		agent   *intakeapi.Client
		status  int
		counted string
	}{
		{"another node", s.agent(t, exporter, "meter-2", intakeapi.Audience), http.StatusForbidden, "wrong_node"},
		{"token for the API server", s.agent(t, exporter, "meter-1", ""), http.StatusUnauthorized, "invalid_token"},
		{"token bound to no pod", s.agent(t, exporter, "", intakeapi.Audience), http.StatusForbidden, "no_node_claim"},
		{"another service account", s.agent(t, types.NamespacedName{Namespace: "default", Name: "default"}, "meter-1", intakeapi.Audience), http.StatusForbidden, "wrong_account"},
	} {
		_, err := test.agent.Register(t.Context(), intakeapi.RegisterRequest{Node: "meter-1", Holder: test.name})
		var status *intakeapi.StatusError
		if !errors.As(err, &status) || status.Status != test.status {
			t.Errorf("%s: %v, want %d", test.name, err, test.status)
		}
		if metric := fmt.Sprintf(`gpubank_intake_refused_total{reason=%q} 1`, test.counted); !strings.Contains(s.metrics(t), metric) {
			t.Errorf("%s: no metric %s", test.name, metric)
		}
	}
}

// The worked example's middle: uneven pieces, some twice, one late, under two epochs.
func testIntakeCharges(t *testing.T, s *suite) {
	ctx := t.Context()
	s.team(t, "metered", 10_000)
	job, pod := s.job(t, "metered", "train")
	s.hold(t, job.UID, "metered", "Job", "train")
	s.allocate(t, pod, job.UID, "meter-1")
	start := secondsAgo(500)
	piece := func(from, to float64) intakeapi.Interval {
		begin, end := start.Add(time.Duration(from*float64(time.Second))), start.Add(time.Duration(to*float64(time.Second)))
		return intakeapi.Interval{
			Key: intakeapi.IntervalKey(string(pod.UID), begin, end), PodUID: string(pod.UID), PodStartedAt: start, Start: begin, End: end,
			GPUUUIDs: []string{"GPU-0", "GPU-1", "GPU-2", "GPU-3"},
		}
	}
	agent := s.agent(t, exporter, "meter-1", intakeapi.Audience)
	first, err := agent.Register(ctx, intakeapi.RegisterRequest{Node: "meter-1", Holder: "first"})
	must(t, err)
	report := func(epoch int64, pieces ...intakeapi.Interval) (outcomes []string, err error) {
		response, err := agent.Report(ctx, intakeapi.IntervalsRequest{Node: "meter-1", Epoch: epoch, Intervals: pieces})
		for _, result := range response.Results {
			outcomes = append(outcomes, fmt.Sprintf("%s %s %v", result.Outcome, result.Code, result.Retry))
		}
		return outcomes, err
	}
	expect := func(got []string, err error, want ...string) {
		t.Helper()
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
	s.bind(t, pod, "meter-1")
	s.reports(t, pod, start, time.Time{})
	got, err := report(first.Epoch, piece(0, 59.25), piece(59.25, 180), piece(0, 59.25))
	expect(got, err, "charged  false", "charged  false", "repeat  false")
	stranger := piece(0, 10)
	stranger.PodUID = "11111111-1111-1111-1111-111111111111"
	stranger.Key = intakeapi.IntervalKey(stranger.PodUID, stranger.Start, stranger.End)
	got, err = report(first.Epoch, stranger)
	expect(got, err, "refused UnknownPod true")

	second, err := agent.Register(ctx, intakeapi.RegisterRequest{Node: "meter-1", Holder: "second"})
	must(t, err)
	if _, err := report(first.Epoch, piece(180, 240)); !errors.Is(err, intakeapi.ErrStaleEpoch) {
		t.Errorf("under the old epoch: %v", err)
	}
	got, err = report(second.Epoch, piece(59.25, 180), piece(300, 420))
	expect(got, err, "repeat  false", "charged  false")
	s.reports(t, pod, start, start.Add(420*time.Second))
	s.reservationIs(t, job.UID, ledger.Settled)
	got, err = report(second.Epoch, piece(180, 300)) // late: replaces the mark, not the money
	expect(got, err, "charged  false")
	s.shows(t, "metered", "8320", "0", "1680")
	discrepancies, err := s.ledger.Discrepancies(ctx)
	must(t, err)
	for _, discrepancy := range discrepancies {
		if discrepancy.PodUID == string(pod.UID) {
			t.Errorf("discrepancy: %+v", discrepancy)
		}
	}
}

func (s *suite) metrics(t *testing.T) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.metricsURL, nil)
	must(t, err)
	response, err := http.DefaultClient.Do(request)
	must(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	must(t, err)
	return string(body)
}
