package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/gpubank/gpubank/pkg/ledger"
	lt "github.com/gpubank/gpubank/pkg/ledger/ledgertest"
	"github.com/gpubank/gpubank/pkg/ledger/postgres"
)

// whole reads the statement of a period.
func (f *fixture) whole(account string, from, to time.Time) ledger.Statement {
	f.t.Helper()
	statement, err := f.store.Statement(f.t.Context(), account, from, to)
	if err != nil {
		f.t.Fatal(err)
	}
	return statement
}

// pages reads a period page by page, each in a snapshot of its own, and puts them together.
func (f *fixture) pages(account string, from, to time.Time, limit int) ledger.Statement {
	f.t.Helper()
	var all ledger.Statement
	query := ledger.StatementQuery{Account: account, From: from, To: to, Limit: limit}
	for n := 0; ; n++ {
		var page ledger.Statement
		if err := f.store.StreamStatement(f.t.Context(), query, ledger.CollectStatement(&page)); err != nil {
			f.t.Fatal(err)
		}
		entries := len(page.Lines) + len(page.PaidByOthers)
		if more := page.Next != (ledger.StatementCursor{}); entries > limit || more && entries != limit || len(page.Workloads) > 0 {
			f.t.Fatalf("page %d has %d entries of at most %d, and is followed by more: %v", n, entries, limit, more)
		}
		if n == 0 {
			all = page
		} else {
			if page.Opening != all.Closing {
				f.t.Fatalf("page %d opens with %d, the one before closed with %d", n, page.Opening, all.Closing)
			}
			all.Lines, all.PaidByOthers = append(all.Lines, page.Lines...), append(all.PaidByOthers, page.PaidByOthers...)
			all.Closing, all.PaidByOthersSum = page.Closing, all.PaidByOthersSum+page.PaidByOthersSum
		}
		if page.Next == (ledger.StatementCursor{}) {
			return all
		}
		query.After = page.Next
	}
}

// L35: entries with equal times, over several chunks and pages: none skipped, none repeated, and the statement adds up; so
// do the statements of any two parts of a period.
func TestStatementOfManyEqualTimes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.teamWith("team", 10_000)
	f.do(lt.Hold("job", "team", 1, 5_000), lt.Allocate("pod", "job", "team", 1))
	const grants, charges = 1_200, 1_300
	for half := range 2 {
		f.clock.SetTime(lt.At(float64(90_000 + 1_000*half)))
		var batch []ledger.Command
		for i := half; i < grants; i += 2 {
			batch = append(batch, lt.Grant(fmt.Sprint(i), "team", 1))
		}
		for i := half; i < charges; i += 2 {
			batch = append(batch, lt.Interval("pod", 0, float64(i), float64(i+1)))
		}
		f.do(batch...)
	}
	whole := f.whole("team", lt.At(0), lt.At(100_000))
	if len(whole.Lines) != 1+grants+charges || whole.Opening != 0 || whole.Closing != (10_000+grants-charges)*ledger.Credit {
		t.Errorf("%d lines, from %d to %d", len(whole.Lines), whole.Opening, whole.Closing)
	}
	first, second := f.whole("team", lt.At(0), lt.At(91_000)), f.whole("team", lt.At(91_000), lt.At(100_000))
	if first.Closing != second.Opening || len(first.Lines)+len(second.Lines) != len(whole.Lines) || second.Closing != whole.Closing {
		t.Error("two statements of a period do not make the statement of the whole")
	}
	if w := second.Workloads[0]; w.ChargedInPeriod != charges/2*ledger.Credit || w.Charged != charges*ledger.Credit {
		t.Errorf("workload of the second part: %+v", w)
	}
	for _, limit := range []int{7, 1_000, 1_001, len(whole.Lines), 5_000} {
		paged := f.pages("team", lt.At(0), lt.At(100_000), limit)
		if diff := cmp.Diff(whole.Lines, paged.Lines); diff != "" || paged.Closing != whole.Closing {
			t.Errorf("pages of %d: closing %d; -whole +paged\n%s", limit, paged.Closing, diff)
		}
	}
	empty := f.whole("nobody", lt.At(0), lt.At(1))
	if empty.Closing != 0 || len(empty.Lines) != 0 {
		t.Errorf("statement of nobody: %+v", empty)
	}
}

// While others write, a statement is of one moment, and pages that are read one by one miss nothing and repeat nothing.
func TestStatementWhileOthersWrite(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.teamWith("team", 1)
	ctx, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	for w := range 3 {
		store := f.open(postgres.Options{Clock: f.clock}) // as several processes do
		writers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if _, err := store.Submit(t.Context(), lt.Grant(fmt.Sprintf("%d-%d", w, i), "team", 1)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	end := lt.At(200_000)
	for range 30 {
		statement := f.whole("team", lt.At(0), end) // which checks itself
		if want := ledger.Microcredits(len(statement.Lines)) * ledger.Credit; statement.Closing != want {
			t.Errorf("%d grants of a credit close with %d", len(statement.Lines), statement.Closing)
		}
	}
	var seen []ledger.StatementLine
	query := ledger.StatementQuery{Account: "team", From: lt.At(0), To: end, Limit: 10}
	for range 30 {
		var page ledger.Statement
		if err := f.store.StreamStatement(ctx, query, ledger.CollectStatement(&page)); err != nil {
			t.Fatal(err)
		}
		if seen = append(seen, page.Lines...); len(page.Lines) > 0 {
			query.After = page.Lines[len(page.Lines)-1].Cursor()
		}
	}
	stop()
	writers.Wait()
	all := f.whole("team", lt.At(0), end)
	if diff := cmp.Diff(all.Lines[:len(seen)], seen); diff != "" {
		t.Errorf("-in the end +seen in pages meanwhile\n%s", diff)
	}
}

// A tree: the team pays for the account below it, the lab above pays for the team's big job. Each statement says whose
// workload a charge was for, and who paid; nothing counts twice.
func TestStatementsOfATree(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.takeCharge()
	day := 86_400.0
	f.clock.SetTime(lt.At(1_000))
	below := func(name, parent string, policy ledger.Policy) ledger.SetAccount {
		c := lt.Account(name, parent, 0)
		c.Policy = policy
		return c
	}
	expiring := lt.Grant("short", "lab", 100)
	expiring.ExpiresAt = lt.At(day)
	f.do(
		lt.Rate(), below("lab", "", ledger.Policy{}),
		below("team", "lab", ledger.Policy{Funding: ledger.FundingAncestor, Refunds: ledger.RefundPolicy{FailedPercent: 50}, Overrun: ledger.Overrun{Action: ledger.OverrunOverdraft}}),
		below("friends", "", ledger.Policy{}), lt.Grant("lab", "lab", 1_000), expiring, lt.Grant("friends", "friends", 10),
		lt.Hold("job", "team", 2, 100), lt.Allocate("pod", "job", "team", 2), lt.Interval("pod", 0, 0, 60), lt.Interval("pod", 0, 60, 120),
		lt.End("pod", 0, 130), ledger.Refund{Key: "refund", PodUID: "pod", Cause: ledger.RefundFailed, Reason: "exit code 1"}, lt.Close("job"),
		lt.Hold("own", "lab", 1, 50),
	)
	f.clock.SetTime(lt.At(1_001))
	charged := f.whole("lab", lt.At(0), lt.At(day)).Lines[2]
	f.do(
		ledger.Adjust{Key: "adjust", Account: "lab", Amount: 7 * ledger.Credit, Corrects: charged.EntryID, Reason: "clock was wrong", Actor: "ops"},
		ledger.Transfer{Key: "transfer", From: "lab", To: "friends", Amount: 30 * ledger.Credit, Reason: "lent", Actor: "ada"},
	)
	f.clock.SetTime(lt.At(2 * day))
	f.do(ledger.PostDue{Key: "due", Account: "lab"}, ledger.PostDue{Key: "due", Account: "friends"})

	for _, account := range []string{"lab", "team", "friends"} {
		for _, format := range []func(*strings.Builder) ledger.StatementSink{
			func(b *strings.Builder) ledger.StatementSink { return ledger.StatementText{}.Sink(b) },
			func(b *strings.Builder) ledger.StatementSink { return ledger.CSVStatement(b) },
		} {
			var out strings.Builder
			if err := f.store.StreamStatement(t.Context(), ledger.StatementQuery{Account: account, From: lt.At(0), To: lt.At(3 * day)}, format(&out)); err != nil {
				t.Fatal(err)
			}
			t.Log("\n" + out.String())
		}
	}

	lab, team, friends := f.whole("lab", lt.At(0), lt.At(3*day)), f.whole("team", lt.At(0), lt.At(3*day)), f.whole("friends", lt.At(0), lt.At(3*day))
	for _, s := range []ledger.Statement{lab, team, friends} {
		account, _, err := f.store.Account(t.Context(), s.Account)
		if err != nil || s.Opening != 0 || s.Closing != account.Balance || s.Reserved != account.Reserved {
			t.Errorf("%s: opening %d, closing %d, reserved %d; the account has %+v", s.Account, s.Opening, s.Closing, s.Reserved, account)
		}
	}
	if len(team.Lines) != 0 || team.PaidByOthersSum != 130*ledger.Credit || len(team.PaidByOthers) != 4 {
		t.Errorf("the team's statement: %+v", team)
	}
	for _, l := range team.PaidByOthers {
		if l.Payer != "lab" || l.Spender != "team" || l.Workload.Name != "job" || l.Kind == ledger.EntryRefund && l.Amount >= 0 {
			t.Errorf("paid by others: %+v", l)
		}
	}
	if paged := f.pages("team", lt.At(0), lt.At(3*day), 3); len(paged.PaidByOthers) != 4 || paged.PaidByOthersSum != team.PaidByOthersSum {
		t.Errorf("in pages: %+v", paged)
	}
	kinds := make(map[ledger.EntryKind]ledger.StatementLine)
	for _, l := range lab.Lines {
		kinds[l.Kind] = l
	}
	// The short-lived 100 credits went first to the job; the refund is in permanent ones.
	if l := kinds[ledger.EntryCharge]; l.Spender != "team" || l.Workload.Name != "job" || l.Counterparty != ledger.SystemRevenue {
		t.Errorf("charge: %+v", l)
	}
	if l := kinds[ledger.EntryAdjustment]; l.Corrects == nil || l.Corrects.EntryID != charged.EntryID || l.Corrects.Amount != charged.Amount {
		t.Errorf("adjustment: %+v of %+v", l, charged)
	}
	if l := kinds[ledger.EntryTransfer]; l.Counterparty != "friends" || l.Amount != -30*ledger.Credit {
		t.Errorf("transfer: %+v", l)
	}
	workloads := make(map[string]ledger.WorkloadSummary)
	for _, w := range lab.Workloads {
		workloads[w.UID] = w
	}
	if w := workloads["job"]; len(workloads) != 2 || w.Account != "team" || w.Payer != "lab" || w.Overrun != 60*ledger.Credit || w.Refunded != 130*ledger.Credit ||
		w.OverrunAction != ledger.OverrunOverdraft || w.ChargedInPeriod != 260*ledger.Credit {
		t.Errorf("workloads: %+v", workloads)
	}
}

// Credits that expire are named with their expiry when they come, when they are passed on, and when they are gone.
func TestStatementNamesExpiry(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.clock.SetTime(lt.At(0))
	short := lt.Grant("short", "a", 100)
	short.ExpiresAt = lt.At(86_400)
	f.do(lt.Account("a", "", 0), lt.Account("b", "", 0), short, lt.Grant("long", "a", 50),
		ledger.Transfer{Key: "t", From: "a", To: "b", Amount: 120 * ledger.Credit, Reason: "lent"})
	f.clock.SetTime(lt.At(90_000))
	f.do(ledger.PostDue{Key: "due", Account: "b"})
	want := []ledger.ExpiringCredits{{Lot: "grant:grant:short", Amount: 100 * ledger.Credit, ExpiresAt: lt.At(86_400)}}
	if got := f.whole("a", lt.At(0), lt.At(100_000)).Lines[0].Expiring; !cmp.Equal(got, want) {
		t.Errorf("grant: %+v", got)
	}
	b := f.whole("b", lt.At(0), lt.At(100_000)).Lines
	want[0].Lot = "transfer:t#0"
	if len(b) != 2 || !cmp.Equal(b[0].Expiring, want) || b[1].Kind != ledger.EntryExpiry || b[1].Amount != -100*ledger.Credit || !cmp.Equal(b[1].Expiring, want) {
		t.Errorf("b: %+v", b)
	}
}

// Every account of random histories: what entries add up to in memory is what a statement of any period says at both
// ends, what BalanceAt says, and what pages come to.
func TestStatementsOfRandomHistories(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.takeCharge()
	for seed := range 25 {
		prefix := fmt.Sprintf("s%d-", seed)
		if _, err := f.store.AcquireLeadership(t.Context(), lt.LeaderOf(prefix), "test"); err != nil {
			t.Fatal(err)
		}
		for _, node := range lt.NodesOf(prefix) {
			if _, err := f.store.RegisterNodeAgent(t.Context(), node, "test"); err != nil {
				t.Fatal(err)
			}
		}
		var moments []time.Time
		for _, batch := range lt.History(prefix).Example(seed) {
			f.clock.SetTime(batch.Now)
			if _, err := f.store.SubmitAll(t.Context(), batch.Commands); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			moments = append(moments, batch.Now)
		}
		slices.SortFunc(moments, time.Time.Compare) // clocks of histories go back at times
		from, to := moments[len(moments)/3], moments[len(moments)*2/3].Add(time.Microsecond)
		// What the entries themselves add up to, the slow way.
		entries := queryAs(t, f, scanWholeEntry, "SELECT kind, debit, credit, COALESCE(spender, ''), amount, recorded_at FROM entry")
		for _, row := range queryAs(t, f, pgx.RowToStructByPos[accountBalance], "SELECT name, balance FROM account WHERE name LIKE '"+prefix+"%'") {
			account := row.Name
			balanceAt := func(at time.Time) (balance ledger.Microcredits) {
				for _, e := range entries {
					if e.RecordedAt.Before(at) && e.Credit == account {
						balance += e.Amount
					}
					if e.RecordedAt.Before(at) && e.Debit == account {
						balance -= e.Amount
					}
				}
				return balance
			}
			s := f.whole(account, from, to)
			if s.Opening != balanceAt(from) || s.Closing != balanceAt(to) {
				t.Errorf("seed %d, account %s: from %d to %d, want from %d to %d", seed, account, s.Opening, s.Closing, balanceAt(from), balanceAt(to))
			}
			var paid ledger.Microcredits
			for _, e := range entries {
				if e.Spender == account && e.Debit != account && e.Credit != account && !e.RecordedAt.Before(from) && e.RecordedAt.Before(to) {
					if paid += e.Amount; e.Kind == ledger.EntryRefund {
						paid -= 2 * e.Amount
					}
				}
			}
			if s.PaidByOthersSum != paid {
				t.Errorf("seed %d, account %s: others paid %d, want %d", seed, account, s.PaidByOthersSum, paid)
			}
			if balance, found, err := f.store.BalanceAt(t.Context(), account, to); err != nil || !found || balance != s.Closing {
				t.Errorf("seed %d, account %s at %s: %d, %v, %v; want %d", seed, account, to, balance, found, err, s.Closing)
			}
			if end := f.whole(account, to, lt.At(1e6)); end.Opening != s.Closing || end.Closing != row.Balance {
				t.Errorf("seed %d, account %s: then from %d to %d, want from %d to %d", seed, account, end.Opening, end.Closing, s.Closing, row.Balance)
			}
			if paged := f.pages(account, from, to, 3); !cmp.Equal(paged.Lines, s.Lines) || !cmp.Equal(paged.PaidByOthers, s.PaidByOthers) {
				t.Errorf("seed %d, account %s: pages differ", seed, account)
			}
		}
	}
}

type accountBalance struct {
	Name    string
	Balance ledger.Microcredits
}

func scanWholeEntry(row pgx.CollectableRow) (e ledger.Entry, err error) {
	err = row.Scan(&e.Kind, &e.Debit, &e.Credit, &e.Spender, &e.Amount, &e.RecordedAt)
	return e, err
}

// What a statement cannot be made of is said, and what its sink says reaches the caller as it is.
func TestStatementErrors(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.teamWith("team", 1)
	for _, account := range ledger.SystemAccounts {
		if _, err := f.store.Statement(t.Context(), account, lt.At(0), lt.At(1)); err == nil || !strings.Contains(err.Error(), "has no statement") {
			t.Errorf("%s: %v", account, err)
		}
	}
	full := errors.New("no space left")
	query := ledger.StatementQuery{Account: "team", From: lt.At(0), To: lt.At(1e6)}
	if err := f.store.StreamStatement(t.Context(), query, failingSink{ledger.CollectStatement(&ledger.Statement{}), full}); err != full {
		t.Errorf("the sink's error comes back as %v", err)
	}
	if _, found, err := f.store.BalanceAt(t.Context(), "nobody", lt.At(0)); found || err != nil {
		t.Errorf("nobody's balance: %v, %v", found, err)
	}
}

type failingSink struct {
	ledger.StatementSink
	err error
}

func (s failingSink) Line(ledger.StatementLine) error { return s.err }
