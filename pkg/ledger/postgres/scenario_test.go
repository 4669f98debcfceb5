package postgres_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/ledger/ledgertest"
)

// The same scenario files that Decide passes alone, batch by batch through a database. Each ends in an audit.
func TestScenarios(t *testing.T) {
	t.Parallel()
	ledgertest.RunScenarios(t, "../testdata/scenarios", func(t *testing.T) ledgertest.Ledger {
		f := newFixture(t)
		f.takeCharge()
		return &databaseLedger{f}
	})
}

// databaseLedger is a store as scenarios see it.
type databaseLedger struct{ *fixture }

func (l *databaseLedger) Do(t *testing.T, now time.Time, commands []ledger.Command) []ledger.Verdict {
	l.clock.SetTime(now)
	verdicts, err := l.store.SubmitAll(t.Context(), commands)
	if err != nil {
		t.Fatal(err)
	}
	return verdicts
}

func (l *databaseLedger) SetEpoch(t *testing.T, kind, name string, epoch int64) {
	acquire := l.store.AcquireLeadership
	if kind == "agent" {
		acquire = l.store.RegisterNodeAgent
	}
	for current := l.currentEpoch(t, kind, name); current < epoch; {
		var err error
		if current, err = acquire(t.Context(), name, "scenario"); err != nil {
			t.Fatal(err)
		}
	}
}

func (l *databaseLedger) currentEpoch(t *testing.T, kind, name string) int64 {
	statement := "SELECT COALESCE(max(epoch), 0) FROM leadership WHERE name = $1"
	if kind == "agent" {
		statement = "SELECT COALESCE(max(epoch), 0) FROM node_agent WHERE node = $1"
	}
	return queryAs(t, l.fixture, pgx.RowTo[int64], statement, name)[0]
}

func (l *databaseLedger) Account(t *testing.T, name string) *ledger.Account {
	return pointer[ledger.Account](t)(l.store.Account(t.Context(), name))
}

func (l *databaseLedger) Reservation(t *testing.T, uid string) *ledger.Reservation {
	return pointer[ledger.Reservation](t)(l.store.Reservation(t.Context(), uid))
}

func (l *databaseLedger) Allocation(t *testing.T, podUID string) *ledger.Allocation {
	return pointer[ledger.Allocation](t)(l.store.Allocation(t.Context(), podUID))
}

func (l *databaseLedger) Intervals(t *testing.T, podUID string) []ledger.Interval {
	return queryAs(t, l.fixture, pgx.RowToStructByPos[ledger.Interval],
		"SELECT pod_uid, started_at, ended_at, source, charge, received_at FROM metered_interval WHERE pod_uid = $1 ORDER BY started_at", podUID)
}

func (l *databaseLedger) Discrepancies(t *testing.T) []ledger.Discrepancy {
	found, err := l.store.Discrepancies(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func (l *databaseLedger) LotsOf(t *testing.T, account string) []ledger.Lot {
	return queryAs(t, l.fixture, pgx.RowToStructByPos[ledger.Lot],
		"SELECT key, account, amount, free, held, expired, expires_at FROM lot WHERE account = $1 ORDER BY key", account)
}

func (l *databaseLedger) EntriesOf(t *testing.T, account string) []ledger.Entry {
	return queryAs(t, l.fixture, func(row pgx.CollectableRow) (e ledger.Entry, err error) {
		var draws string
		if err = row.Scan(&e.ID, &e.Kind, &e.Debit, &e.Credit, &e.Spender, &e.Amount, &e.Corrects, &draws, &e.OccurredAt, &e.RecordedAt, &e.Reason); err == nil && draws != "" {
			err = json.Unmarshal([]byte(draws), &e.Draws)
		}
		return e, err
	}, `SELECT id, kind, debit, credit, COALESCE(spender, ''), amount, COALESCE(corrects, 0), draws, occurred_at, recorded_at, reason
		FROM entry WHERE $1 IN (debit, credit, spender) ORDER BY id`, account)
}

func pointer[T any](t *testing.T) func(T, bool, error) *T {
	return func(row T, found bool, err error) *T {
		if err != nil {
			t.Fatal(err)
		}
		if !found {
			return nil
		}
		return &row
	}
}

// queryAs reads rows past the store, as another client of the database.
func queryAs[T any](t testing.TB, f *fixture, scan pgx.RowToFunc[T], statement string, args ...any) []T {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), f.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(), statement, args...)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, scan)
	if err != nil {
		t.Fatal(err)
	}
	return all
}
