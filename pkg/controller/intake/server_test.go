package intake

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	authenticationv1 "k8s.io/api/authentication/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/meter/intakeapi"
)

const agentUser = "system:serviceaccount:gpubank-system:nvml-exporter"

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// reviews answers from a table of tokens, and counts how often it is asked.
type reviews struct {
	byToken map[string]authenticationv1.TokenReviewStatus
	asked   int
}

func (r *reviews) ReviewToken(_ context.Context, token, _ string) (authenticationv1.TokenReviewStatus, error) {
	r.asked++
	if token == "apiserver-away" {
		return authenticationv1.TokenReviewStatus{}, errors.New("connection refused")
	}
	return r.byToken[token], nil
}

func review(user, node string, audiences ...string) authenticationv1.TokenReviewStatus {
	status := authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: audiences, User: authenticationv1.UserInfo{Username: user}}
	if node != "" {
		status.User.Extra = map[string]authenticationv1.ExtraValue{nodeNameClaim: {node}}
	}
	return status
}

// answers is a ledger that answers each command from a table, by key.
type answers struct {
	byKey map[string]ledger.Verdict
	err   error
	asked []ledger.Command
	// faults are those that were kept under whatever epoch; 7 is the current one.
	faults []ledger.DeviceFault
}

func (a *answers) SubmitAll(_ context.Context, commands []ledger.Command) ([]ledger.Verdict, error) {
	a.asked = commands
	verdicts := make([]ledger.Verdict, len(commands))
	for i, command := range commands {
		verdicts[i] = a.byKey[command.CommandKey()]
	}
	return verdicts, a.err
}

func (a *answers) RegisterNodeAgent(_ context.Context, node, holder string) (int64, error) {
	return 7, a.err
}

func (a *answers) RecordDeviceFaults(_ context.Context, node string, epoch int64, faults []ledger.DeviceFault) (bool, error) {
	a.faults = append(a.faults, faults...)
	return epoch == 7, a.err
}

type fixture struct {
	server  *Server
	reviews *reviews
	ledger  *answers
	clock   *clocktesting.FakePassiveClock
}

func newFixture() *fixture {
	f := &fixture{
		reviews: &reviews{byToken: map[string]authenticationv1.TokenReviewStatus{
			"good":           review(agentUser, "n1", intakeapi.Audience),
			"other-audience": review(agentUser, "n1", "https://kubernetes.default.svc"),
			"other-account":  review("system:serviceaccount:team-a:default", "n1", intakeapi.Audience),
			"no-node":        review(agentUser, "", intakeapi.Audience),
			"bad":            {Error: "token has expired"},
		}},
		ledger: &answers{byKey: map[string]ledger.Verdict{}},
		clock:  clocktesting.NewFakePassiveClock(t0),
	}
	f.server = New(Options{
		Ledger: f.ledger, Reviewer: f.reviews, AgentUser: agentUser, Clock: f.clock,
		Metrics: NewMetrics(prometheus.NewRegistry()), Logger: logr.Discard(),
	})
	return f
}

func (f *fixture) post(path, token, body string) *httptest.ResponseRecorder {
	request := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	recorder := httptest.NewRecorder()
	f.server.Handler().ServeHTTP(recorder, request)
	return recorder
}

func TestOnlyTheNodesOwnAgentIsBelieved(t *testing.T) {
	const body = `{"node":"n1","holder":"h"}`
	for _, test := range []struct {
		name, token, body string
		status            int
		reason            string
	}{
		{"its own agent", "good", body, 200, ""},
		{"no token", "", body, 401, "no_token"},
		{"unknown token", "bad", body, 401, "invalid_token"},
		{"token for the API server", "other-audience", body, 401, "wrong_audience"},
		{"a team's service account", "other-account", body, 403, "wrong_account"},
		{"token that names no node", "no-node", body, 403, "no_node_claim"},
		{"another node", "good", `{"node":"n2","holder":"h"}`, 403, "wrong_node"},
		{"API server away", "apiserver-away", body, 503, "review_unavailable"},
		{"unknown field", "good", `{"node":"n1","holder":"h","epoch":9}`, 400, "malformed"},
		{"two values", "good", body + body, 400, "malformed"},
		{"no holder", "good", `{"node":"n1"}`, 400, "malformed"},
		{"too large", "good", `{"node":"` + strings.Repeat("n", intakeapi.MaxBodyBytes) + `"}`, 413, "too_large"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture()
			got := f.post(intakeapi.RegisterPath, test.token, test.body)
			if got.Code != test.status {
				t.Errorf("status %d, want %d: %s", got.Code, test.status, got.Body)
			}
			if test.reason != "" && testutil.ToFloat64(f.server.options.Metrics.refused.WithLabelValues(test.reason)) != 1 {
				t.Errorf("not counted as %s: %s", test.reason, got.Body)
			}
		})
	}
}

func TestATokenIsReviewedOncePerMinute(t *testing.T) {
	f := newFixture()
	const body = `{"node":"n1","holder":"h"}`
	for _, step := range []struct {
		after time.Duration
		token string
		asked int
	}{
		{0, "good", 1}, {reviewTTL - time.Second, "good", 1}, {2 * time.Second, "good", 2},
		// A refusal is never remembered: the token may become valid, and made-up ones must not fill the cache.
		{0, "bad", 3}, {0, "bad", 4},
	} {
		f.clock.SetTime(f.clock.Now().Add(step.after))
		f.post(intakeapi.RegisterPath, step.token, body)
		if f.reviews.asked != step.asked {
			t.Errorf("after %s with %s: %d reviews, want %d", step.after, step.token, f.reviews.asked, step.asked)
		}
	}
}

func interval(pod string, from, to int) intakeapi.Interval {
	start, end := t0.Add(time.Duration(from)*time.Second), t0.Add(time.Duration(to)*time.Second)
	return intakeapi.Interval{
		Key: intakeapi.IntervalKey(pod, start, end), PodUID: pod, PodStartedAt: t0, Start: start, End: end, GPUUUIDs: []string{"GPU-1"},
	}
}

func refused(code ledger.RefusalCode) ledger.Verdict {
	return ledger.Verdict{Refusal: &ledger.Refusal{Code: code, Message: "because"}}
}

func TestEachIntervalGetsItsAnswerInOrder(t *testing.T) {
	f := newFixture()
	sent := []intakeapi.Interval{
		interval("a", 0, 60), interval("a", 60, 120), interval("b", 0, 60), interval("c", 0, 60), interval("d", 0, 60), interval("e", 0, 60),
	}
	sent[4].Key = "interval:made-up"
	sent[5].End = sent[5].End.Add(time.Nanosecond) // the key's microseconds are the same, the time is not
	f.ledger.byKey[sent[1].Key] = ledger.Verdict{Replayed: true}
	f.ledger.byKey[sent[2].Key] = refused(ledger.UnknownPod)
	f.ledger.byKey[sent[3].Key] = refused(ledger.Conflict)
	body, err := json.Marshal(intakeapi.IntervalsRequest{Node: "n1", Epoch: 7, Intervals: sent})
	if err != nil {
		t.Fatal(err)
	}
	answer := f.post(intakeapi.IntervalsPath, "good", string(body))
	var got intakeapi.IntervalsResponse
	if err := json.Unmarshal(answer.Body.Bytes(), &got); err != nil {
		t.Fatalf("status %d: %s", answer.Code, answer.Body)
	}
	want := []intakeapi.Result{
		{Key: sent[0].Key, Outcome: intakeapi.Charged},
		{Key: sent[1].Key, Outcome: intakeapi.Repeat},
		{Key: sent[2].Key, Outcome: intakeapi.Refused, Code: "UnknownPod", Message: "because", Retry: true},
		{Key: sent[3].Key, Outcome: intakeapi.Refused, Code: "Conflict", Message: "because"},
		{Key: sent[4].Key, Outcome: intakeapi.Refused, Code: codeMalformed, Message: "the key does not belong to this pod and these times"},
		{Key: sent[5].Key, Outcome: intakeapi.Refused, Code: codeMalformed, Message: "times must be whole microseconds"},
	}
	if diff := cmp.Diff(want, got.Results); diff != "" {
		t.Errorf("results: -want +got\n%s", diff)
	}
	if len(f.ledger.asked) != 4 {
		t.Errorf("%d commands in the batch, want the 4 well-formed ones", len(f.ledger.asked))
	}
	first := ledger.RecordInterval{
		Key: sent[0].Key, PodUID: "a", Node: "n1", OwnerEpoch: 7, PodStartedAt: t0, Start: sent[0].Start, End: sent[0].End, GPUUUIDs: []string{"GPU-1"},
	}
	if diff := cmp.Diff(first, f.ledger.asked[0]); diff != "" {
		t.Errorf("first command: -want +got\n%s", diff)
	}
}

// Pods that nobody will ever pay for must not fill a node's spool for good.
func TestAnUnknownPodsIntervalsAreGivenUpInTheEnd(t *testing.T) {
	f := newFixture()
	sent := []intakeapi.Interval{interval("forged", 0, 60), interval("forged", 60, 120), interval("ahead", 0, 60)}
	f.ledger.byKey[sent[0].Key] = refused(ledger.UnknownPod)
	f.ledger.byKey[sent[1].Key] = refused(ledger.UnknownPod)
	f.ledger.byKey[sent[2].Key] = refused(ledger.InTheFuture)
	f.clock.SetTime(sent[0].End.Add(unknownPodPatience + time.Second)) // the second's end is not as old yet
	body, err := json.Marshal(intakeapi.IntervalsRequest{Node: "n1", Epoch: 7, Intervals: sent})
	if err != nil {
		t.Fatal(err)
	}
	var got intakeapi.IntervalsResponse
	if err := json.Unmarshal(f.post(intakeapi.IntervalsPath, "good", string(body)).Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	var settled []bool
	for _, result := range got.Results {
		settled = append(settled, result.Settled())
	}
	if diff := cmp.Diff([]bool{true, false, false}, settled); diff != "" {
		t.Errorf("which intervals the agent may forget: -want +got\n%s", diff)
	}
}

func TestAWholeReportIsTurnedAway(t *testing.T) {
	one, err := json.Marshal(intakeapi.IntervalsRequest{Node: "n1", Epoch: 6, Intervals: []intakeapi.Interval{interval("a", 0, 60)}})
	if err != nil {
		t.Fatal(err)
	}
	many, err := json.Marshal(intakeapi.IntervalsRequest{Node: "n1", Epoch: 6, Intervals: make([]intakeapi.Interval, intakeapi.MaxIntervals+1)})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, body string
		prepare    func(*fixture)
		status     int
		retryAfter string
	}{
		{"stale epoch (I7)", string(one), func(f *fixture) { f.ledger.byKey[interval("a", 0, 60).Key] = refused(ledger.StaleEpoch) }, 409, ""},
		{"database away", string(one), func(f *fixture) { f.ledger.err = errors.New("connection refused") }, 503, "2"},
		{"busy", string(one), func(f *fixture) { f.server.busy["n1"] = nodeConcurrency }, 429, "2"},
		{"too many intervals", string(many), func(*fixture) {}, 413, ""},
		{"no epoch", `{"node":"n1","epoch":0,"intervals":[{}]}`, func(*fixture) {}, 400, ""},
		{"nothing in it", `{"node":"n1","epoch":1,"intervals":[]}`, func(*fixture) {}, 400, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture()
			test.prepare(f)
			got := f.post(intakeapi.IntervalsPath, "good", test.body)
			if got.Code != test.status || got.Header().Get("Retry-After") != test.retryAfter {
				t.Errorf("status %d, Retry-After %q; want %d, %q: %s", got.Code, got.Header().Get("Retry-After"), test.status, test.retryAfter, got.Body)
			}
		})
	}
}

func TestFaultsAreKeptForTheNodeOfTheToken(t *testing.T) {
	const good = `{"gpuUUID":"GPU-1","xid":79,"since":"2026-03-01T11:59:50Z","at":"2026-03-01T11:59:55Z"}`
	for name, c := range map[string]struct {
		token, body string
		status      int
		kept        bool
	}{
		"its own":            {"good", `{"node":"n1","epoch":7,"faults":[` + good + `]}`, 200, true},
		"another node's":     {"good", `{"node":"n2","epoch":7,"faults":[` + good + `]}`, 403, false},
		"a team's":           {"other-account", `{"node":"n1","epoch":7,"faults":[` + good + `]}`, 403, false},
		"an older agent's":   {"good", `{"node":"n1","epoch":6,"faults":[` + good + `]}`, 409, true},
		"before registering": {"good", `{"node":"n1","faults":[` + good + `]}`, 400, false},
		"none":               {"good", `{"node":"n1","epoch":7,"faults":[]}`, 400, false},
		"without a code":     {"good", `{"node":"n1","epoch":7,"faults":[{"gpuUUID":"GPU-1","since":"2026-03-01T11:59:50Z","at":"2026-03-01T11:59:55Z"}]}`, 400, false},
		"without a GPU":      {"good", `{"node":"n1","epoch":7,"faults":[{"xid":79,"since":"2026-03-01T11:59:50Z","at":"2026-03-01T11:59:55Z"}]}`, 400, false},
		"backwards":          {"good", `{"node":"n1","epoch":7,"faults":[{"gpuUUID":"GPU-1","xid":79,"since":"2026-03-01T11:59:50Z","at":"2026-03-01T11:59:45Z"}]}`, 400, false},
		"to come":            {"good", `{"node":"n1","epoch":7,"faults":[{"gpuUUID":"GPU-1","xid":79,"since":"2026-03-01T11:59:50Z","at":"2036-03-01T11:59:55Z"}]}`, 400, false},
	} {
		f := newFixture()
		answer := f.post(intakeapi.FaultsPath, c.token, c.body)
		if answer.Code != c.status || (len(f.ledger.faults) > 0) != c.kept {
			t.Errorf("%s: %d %s, kept %+v", name, answer.Code, answer.Body, f.ledger.faults)
		}
		for _, fault := range f.ledger.faults {
			if fault.Node != "n1" || fault.GPUUUID != "GPU-1" || fault.XID != 79 {
				t.Errorf("%s: kept %+v", name, fault)
			}
		}
	}
}
