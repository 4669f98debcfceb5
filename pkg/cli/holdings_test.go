package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/gpubank/gpubank/pkg/ledger"
)

func TestLots(t *testing.T) {
	t.Parallel()
	store := &reader{lots: []ledger.Lot{
		{Key: "grant:a", Account: "team-a", Amount: 100 * ledger.Credit, Free: 40 * ledger.Credit, Held: 60 * ledger.Credit, ExpiresAt: now.Add(90 * time.Minute)},
		{Key: "grant:b", Account: "team-a", Amount: 500 * ledger.Credit, Free: 250*ledger.Credit + 1, ExpiresAt: now.AddDate(0, 0, 10)},
		{Key: "grant:c", Account: "team-a", Amount: 500 * ledger.Credit, Free: 1, ExpiresAt: now.Add(-time.Second)},
	}}
	out, err := run(t, store, "lots", "team-a", "--database-url-file=f")
	const want = `Credits of account team-a that expire, the first to be used first, times in UTC

EXPIRES              IN   GRANT    GRANTED        FREE  HELD
2026-03-17 16:34:05  1h   grant:a      100          40    60
2026-03-27 15:04:05  10d  grant:b      500  250.000001     0
2026-03-17 15:04:04  due  grant:c      500    0.000001     0

649.999998 more do not expire; the balance is 1,000.
`
	if err != nil || out != want {
		t.Errorf("%v, got\n%s\nwant\n%s", err, out, want)
	}
	out, err = run(t, store, "lots", "team-a", "--database-url-file=f", "-o=json")
	var got lotsResult
	if problem := json.Unmarshal([]byte(out), &got); err != nil || problem != nil || got.Permanent != 649_999_998 || len(got.Lots) != 3 || got.Lots[0].Held != 60*ledger.Credit {
		t.Errorf("%v, %v, %+v", err, problem, got)
	}
	if out, err = run(t, &reader{}, "lots", "team-a", "--database-url-file=f"); err != nil || out != "No credits of account team-a expire; its balance is 1,000.\n" {
		t.Errorf("%v, %s", err, out)
	}
	if _, err = run(t, &reader{}, "lots", "nobody", "--database-url-file=f"); ExitCode(err) != 2 || !strings.Contains(err.Error(), `no account "nobody"`) {
		t.Errorf("nobody: %v", err)
	}
}

func TestSpend(t *testing.T) {
	t.Parallel()
	day := func(month time.Month, d int) time.Time { return time.Date(2026, month, d, 0, 0, 0, 0, time.UTC) }
	store := &reader{spending: []ledger.DailySpending{
		{Account: "team-a", Day: day(2, 27), Amount: 1_200 * ledger.Credit}, {Account: "team-a", Day: day(3, 1), Amount: 300*ledger.Credit + 500_000},
		{Account: "team-a", Day: day(3, 2), Amount: -20 * ledger.Credit},
	}}
	for _, test := range []struct{ arguments, want string }{
		{"", `Credits spent by account team-a, 2026-02-20 to 2026-03-17 (UTC, both included)

DAY         CREDITS
2026-02-27    1,200
2026-03-01    300.5
2026-03-02      -20
total       1,480.5
`},
		{"--by=week", `WEEK                       CREDITS
2026-W09, from 2026-02-23  1,500.5
2026-W10, from 2026-03-02      -20
`},
		{"--by=month", "2026-02    1,200\n2026-03    280.5\n"},
		{"--by=quarter", "2026 Q1  1,480.5\n"},
		{"--by=Year", "2026   1,480.5\n"},
		{"-o=csv --by=month", "account,by,start,credits\r\nteam-a,month,2026-02-01,1200\r\nteam-a,month,2026-03-01,280.5\r\n"},
		{"-o=json", `"total_microcredits": 1480500000`},
	} {
		out, err := run(t, store, append([]string{"spend", "team-a", "--database-url-file=f", "--from=2026-02-20"}, strings.Fields(test.arguments)...)...)
		if err != nil || !strings.Contains(out, test.want) {
			t.Errorf("%s: %v\n%s", test.arguments, err, out)
		}
	}
	// Now is within a day, which counts.
	if !store.spendingFrom.Equal(day(2, 20)) || !store.spendingTo.Equal(day(3, 18)) {
		t.Errorf("asked for %s to %s", store.spendingFrom, store.spendingTo)
	}
	if out, err := run(t, &reader{}, "spend", "team-a", "--database-url-file=f", "--month=2026-02"); err != nil ||
		!strings.Contains(strings.Join(strings.Fields(out), " "), "spent nothing from 2026-02-01 to 2026-02-28 (UTC, both included).") {
		t.Errorf("%v\n%s", err, out)
	}
	for _, arguments := range []string{"team-a --by=hour", "nobody", "team-a --zone=Europe/Berlin"} {
		if _, err := run(t, store, append([]string{"spend", "--database-url-file=f"}, strings.Fields(arguments)...)...); ExitCode(err) != 2 {
			t.Errorf("%s: %v", arguments, err)
		}
	}
}

// A rebuild rehearses first, and says what it does not repair.
func TestRebuild(t *testing.T) {
	t.Parallel()
	broken := []ledger.Violation{
		{Invariant: "I2", Subject: "account team-a", Detail: "says 8, entries add up to 9"},
		{Invariant: "I4", Subject: "allocation p", Detail: "is charged too much"},
	}
	for _, test := range []struct {
		violations []ledger.Violation
		arguments  string
		rebuilds   int
		want       string
	}{
		{broken, "", 0, `1 sum differs from what entries and open reservations add up to (in
microcredits, 1,000,000 to a credit):
    - account team-a: says 8, entries add up to 9

A rebuild does not repair 1 other violation that an audit finds; see kubectl
credit audit.

Nothing was changed. To write what is right: kubectl credit rebuild --commit
`},
		{broken[:1], "--commit", 1, "Committed: 1 row was changed."},
		{nil, "", 0, "Every sum is what the entries and open reservations add up to.\n"},
		{nil, "--commit -o=json", 1, `"committed": true`},
	} {
		store := &reader{violations: test.violations}
		out, err := run(t, store, append([]string{"rebuild", "--database-url-file=f"}, strings.Fields(test.arguments)...)...)
		if err != nil || store.rebuilds != test.rebuilds || !strings.Contains(out, test.want) {
			t.Errorf("%q: %v, %d rebuilds\n%s", test.arguments, err, store.rebuilds, out)
		}
	}
}
