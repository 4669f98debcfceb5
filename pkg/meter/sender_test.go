package meter

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/gpubank/gpubank/pkg/meter/intakeapi"
)

// testIntake is an HTTPS server that answers as answer says, and remembers what it was asked.
type testIntake struct {
	*httptest.Server
	mu       sync.Mutex
	tokens   []string
	requests []intakeapi.IntervalsRequest
	register int // status to answer a registration with, 0 for success
	report   func(intakeapi.IntervalsRequest) (int, []intakeapi.Result)
	holders  []string
	after    string // Retry-After
	// faults are the reports of faults, faultStatus what to answer them with, 0 for success.
	faults      []intakeapi.FaultsRequest
	faultStatus int
}

func newTestIntake(t *testing.T) *testIntake {
	intake := &testIntake{report: charge}
	intake.Server = httptest.NewTLSServer(intake)
	t.Cleanup(intake.Close)
	return intake
}

func charge(request intakeapi.IntervalsRequest) (int, []intakeapi.Result) {
	var results []intakeapi.Result
	for _, interval := range request.Intervals {
		results = append(results, intakeapi.Result{Key: interval.Key, Outcome: intakeapi.Charged})
	}
	return http.StatusOK, results
}

func (i *testIntake) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.tokens = append(i.tokens, request.Header.Get("Authorization"))
	status, answer := http.StatusOK, any(nil)
	switch request.URL.Path {
	case intakeapi.RegisterPath:
		var asked intakeapi.RegisterRequest
		_ = json.NewDecoder(request.Body).Decode(&asked)
		i.holders = append(i.holders, asked.Holder)
		answer = intakeapi.RegisterResponse{Epoch: int64(len(i.holders))}
		status = max(i.register, status)
	case intakeapi.IntervalsPath:
		var asked intakeapi.IntervalsRequest
		_ = json.NewDecoder(request.Body).Decode(&asked)
		i.requests = append(i.requests, asked)
		var results []intakeapi.Result
		status, results = i.report(asked)
		answer = intakeapi.IntervalsResponse{Results: results}
	case intakeapi.FaultsPath:
		var asked intakeapi.FaultsRequest
		_ = json.NewDecoder(request.Body).Decode(&asked)
		i.faults = append(i.faults, asked)
		answer = intakeapi.FaultsResponse{Kept: len(asked.Faults)}
		status = max(i.faultStatus, status)
	}
	if status != http.StatusOK {
		response.Header().Set("Retry-After", i.after)
		answer = intakeapi.ErrorResponse{Message: "not today"}
	}
	response.WriteHeader(status)
	_ = json.NewEncoder(response).Encode(answer)
}

// sending is a sender with everything around it.
type sending struct {
	*Sender
	intake    *testIntake
	spool     *Spool
	clock     *clocktesting.FakeClock
	tokenFile string
	caFile    string
}

func newSending(t *testing.T) sending {
	intake := newTestIntake(t)
	folder := t.TempDir()
	s := sending{
		intake: intake, spool: openTestSpool(t, filepath.Join(folder, "spool.db")), clock: clocktesting.NewFakeClock(second(0)),
		tokenFile: filepath.Join(folder, "token"), caFile: filepath.Join(folder, "ca.crt"),
	}
	s.trust(t, intake)
	s.token(t, "first")
	client, err := intakeapi.NewClient(intakeapi.ClientOptions{URL: intake.URL, CAFile: s.caFile, TokenFile: s.tokenFile})
	if err != nil {
		t.Fatal(err)
	}
	metrics := NewMetrics(s.spool, 100, prometheus.NewRegistry())
	s.Sender = NewSender("n1", client, s.spool, s.clock, func() float64 { return 0 }, metrics)
	return s
}

func (s sending) trust(t *testing.T, intake *testIntake) {
	t.Helper()
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: intake.Certificate().Raw})
	if err := os.WriteFile(s.caFile, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (s sending) token(t *testing.T, token string) {
	t.Helper()
	if err := os.WriteFile(s.tokenFile, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (s sending) mustStep(t *testing.T) time.Duration {
	t.Helper()
	delay, err := s.step(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return delay
}

func TestSenderReportsAndForgets(t *testing.T) {
	s := newSending(t)
	fill(t, s.spool, 3, "a")
	if delay := s.mustStep(t); delay != 0 || s.spool.Depth() != 0 {
		t.Errorf("delay %v, %d intervals left", delay, s.spool.Depth())
	}
	request := s.intake.requests[0]
	if request.Node != "n1" || request.Epoch != 1 {
		t.Errorf("reported for node %s under epoch %d", request.Node, request.Epoch)
	}
	if diff := cmp.Diff([]intakeapi.Interval{testInterval("a", 0), testInterval("a", 1), testInterval("a", 2)}, request.Intervals); diff != "" {
		t.Errorf("intervals (-want +got):\n%s", diff)
	}
	// Projected tokens rotate: the file is read for each request.
	s.token(t, "second")
	fill(t, s.spool, 1, "b")
	s.mustStep(t)
	if diff := cmp.Diff([]string{"Bearer first", "Bearer first", "Bearer second"}, s.intake.tokens); diff != "" {
		t.Errorf("tokens (-want +got):\n%s", diff)
	}
	if delay := s.mustStep(t); delay != lastBackoff {
		t.Errorf("idle for %v", delay)
	}
	if len(s.intake.holders) != 1 {
		t.Errorf("registered %d times", len(s.intake.holders))
	}
}

func TestSenderSendsInBatches(t *testing.T) {
	s := newSending(t)
	fill(t, s.spool, intakeapi.MaxIntervals+1, "a")
	s.mustStep(t)
	s.mustStep(t)
	if len(s.intake.requests) != 2 || len(s.intake.requests[0].Intervals) != intakeapi.MaxIntervals || s.spool.Depth() != 0 {
		t.Errorf("%d requests, %d intervals left", len(s.intake.requests), s.spool.Depth())
	}
}

// A refusal for good is dropped and counted; one for now is kept, and holds up only its own pod.
func TestSenderHandlesRefusals(t *testing.T) {
	s := newSending(t)
	fill(t, s.spool, 2, "known", "unknown", "conflict")
	s.intake.report = func(request intakeapi.IntervalsRequest) (int, []intakeapi.Result) {
		status, results := charge(request)
		for i, interval := range request.Intervals {
			switch interval.PodUID {
			case "unknown":
				results[i] = intakeapi.Result{Key: interval.Key, Outcome: intakeapi.Refused, Code: "UnknownPod", Retry: true}
			case "conflict":
				results[i] = intakeapi.Result{Key: interval.Key, Outcome: intakeapi.Refused, Code: "Conflict"}
			}
		}
		return status, results
	}
	s.mustStep(t)
	if diff := cmp.Diff(map[string]int{"unknown": 2}, s.spool.State().Pending); diff != "" {
		t.Fatalf("kept (-want +got):\n%s", diff)
	}
	fill(t, s.spool, 1, "late")
	s.mustStep(t)
	if got := s.intake.requests[1].Intervals; len(got) != 1 || got[0].PodUID != "late" {
		t.Errorf("the second request has %v", got)
	}
	if delay := s.mustStep(t); delay != firstBackoff {
		t.Errorf("waits %v for the refused pod", delay)
	}
	for _, want := range []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second} {
		s.clock.Step(want / 2)
		s.mustStep(t)
		if delay := s.mustStep(t); delay != want {
			t.Errorf("waits %v, want %v", delay, want)
		}
	}
	s.intake.report = charge
	s.clock.Step(lastBackoff)
	s.mustStep(t)
	if s.spool.Depth() != 0 {
		t.Errorf("%d intervals left", s.spool.Depth())
	}
}

func TestSenderBacksOff(t *testing.T) {
	s := newSending(t)
	fill(t, s.spool, 1, "a")
	s.intake.register, s.intake.after = http.StatusServiceUnavailable, "120"
	for _, want := range []time.Duration{120 * time.Second, 120 * time.Second} { // the server asked for 120 s
		if delay, err := s.step(context.Background()); err == nil || delay != want {
			t.Errorf("delay %v, error %v", delay, err)
		}
	}
	s.intake.register = 0
	s.intake.report = func(intakeapi.IntervalsRequest) (int, []intakeapi.Result) { return http.StatusTooManyRequests, nil }
	if delay, err := s.step(context.Background()); err == nil || delay != 120*time.Second {
		t.Errorf("delay %v, error %v", delay, err)
	}
	s.intake.Close()
	var delays []time.Duration
	for range 8 {
		delay, err := s.step(context.Background())
		if err == nil {
			t.Fatal("reported to a closed server")
		}
		delays = append(delays, delay)
	}
	if delays[0] != 2*time.Second || delays[7] != lastBackoff {
		t.Errorf("delays %v", delays)
	}
	if s.spool.Depth() != 1 {
		t.Errorf("%d intervals left", s.spool.Depth())
	}
}

// One interval that the intake cannot read does not hold up the others, and is not dropped.
func TestSenderIsolatesWhatTheIntakeCannotRead(t *testing.T) {
	s := newSending(t)
	fill(t, s.spool, 3, "good", "bad", "fine")
	s.intake.report = func(request intakeapi.IntervalsRequest) (int, []intakeapi.Result) {
		for _, interval := range request.Intervals {
			if interval.PodUID == "bad" {
				return http.StatusBadRequest, nil
			}
		}
		return charge(request)
	}
	for range 30 {
		_, _ = s.step(context.Background())
	}
	if diff := cmp.Diff(map[string]int{"bad": 3}, s.spool.State().Pending); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

// An answer that does not match the question acknowledges nothing.
func TestSenderDistrustsOddAnswers(t *testing.T) {
	for name, results := range map[string][]intakeapi.Result{
		"too few":         {},
		"of another":      {{Key: "interval:x", Outcome: intakeapi.Charged}},
		"unknown outcome": {{Key: testInterval("a", 0).Key, Outcome: "maybe"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSending(t)
			fill(t, s.spool, 1, "a")
			s.intake.report = func(intakeapi.IntervalsRequest) (int, []intakeapi.Result) { return http.StatusOK, results }
			if _, err := s.step(context.Background()); err == nil || s.spool.Depth() != 1 {
				t.Errorf("error %v, %d intervals left", err, s.spool.Depth())
			}
		})
	}
}

// B13: fencing. The process that is told of a newer one ends, and does not register again.
func TestSenderEndsWhenReplaced(t *testing.T) {
	s := newSending(t)
	fill(t, s.spool, 1, "a")
	s.intake.report = func(intakeapi.IntervalsRequest) (int, []intakeapi.Result) { return http.StatusConflict, nil }
	err := s.Run(t.Context())
	if !errors.Is(err, intakeapi.ErrStaleEpoch) || len(s.intake.holders) != 1 || s.spool.Depth() != 1 {
		t.Errorf("Run = %v after %d registrations, %d intervals left", err, len(s.intake.holders), s.spool.Depth())
	}
}

// The intake's authority is rotated: the file is read again, and a server that it does not vouch for is not spoken to.
func TestSenderTrustsWhatTheFileSaysNow(t *testing.T) {
	s := newSending(t)
	fill(t, s.spool, 1, "a")
	if err := os.WriteFile(s.caFile, []byte("nothing yet"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.step(context.Background()); err == nil || !strings.Contains(err.Error(), "holds no PEM certificate") {
		t.Errorf("error %v", err)
	}
	// The system's authorities do not vouch for the test server.
	untrusting, err := intakeapi.NewClient(intakeapi.ClientOptions{URL: s.intake.URL, TokenFile: s.tokenFile})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := untrusting.Register(context.Background(), intakeapi.RegisterRequest{Node: "n1"}); err == nil {
		t.Error("registered with a server that nobody vouches for")
	}
	if len(s.intake.tokens) != 0 {
		t.Errorf("%d requests reached it", len(s.intake.tokens))
	}
	s.trust(t, s.intake)
	s.mustStep(t)
	if s.spool.Depth() != 0 {
		t.Errorf("%d intervals left", s.spool.Depth())
	}
}

func TestClientRefusesPlainHTTP(t *testing.T) {
	if _, err := intakeapi.NewClient(intakeapi.ClientOptions{URL: "http://intake", TokenFile: "token"}); err == nil {
		t.Error("a token would travel in the clear")
	}
	if _, err := intakeapi.NewClient(intakeapi.ClientOptions{URL: "https://intake"}); err == nil {
		t.Error("no token file")
	}
}

func TestBackoffIsSpreadByChance(t *testing.T) {
	s := &Sender{chance: func() float64 { return 0.5 }}
	for failures, want := range []time.Duration{750 * time.Millisecond, 1500 * time.Millisecond, 3 * time.Second} {
		if got := s.backoff(failures); got != want {
			t.Errorf("%s", fmt.Sprintf("backoff after %d failures is %v, want %v", failures, got, want))
		}
	}
}
