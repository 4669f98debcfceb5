package postgres_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/gpubank/gpubank/pkg/ledger"
	lt "github.com/gpubank/gpubank/pkg/ledger/ledgertest"
	"github.com/gpubank/gpubank/pkg/ledger/ledgertest/slow"
)

// Random histories through the database and through the slow ledger: every answer is the same, and after every batch so is
// every row. So what a batch loads is all it needs, and what it saves is all it decided. Then the audits, as always, and a
// rebuild that finds nothing to do.
func TestRandomHistories(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	conn, err := pgx.Connect(t.Context(), f.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for seed := range 60 {
		compareHistory(t, f, conn, seed)
	}
	if changed, err := f.store.Rebuild(t.Context()); err != nil || changed != 0 {
		t.Errorf("the rebuild changed %d accounts, %v", changed, err)
	}
}

func compareHistory(t *testing.T, f *fixture, conn *pgx.Conn, seed int) {
	prefix := fmt.Sprintf("s%d-", seed)
	plain := slow.New(map[string]int64{lt.LeaderOf(prefix): 1}, map[string]int64{lt.NodesOf(prefix)[0]: 1, lt.NodesOf(prefix)[1]: 1})
	plain.Partial = true
	if _, err := f.store.AcquireLeadership(t.Context(), lt.LeaderOf(prefix), "test"); err != nil {
		t.Fatal(err)
	}
	for _, node := range lt.NodesOf(prefix) {
		if _, err := f.store.RegisterNodeAgent(t.Context(), node, "test"); err != nil {
			t.Fatal(err)
		}
	}
	r := &rowReader{T: t, conn: conn, prefix: prefix + "%"}
	for n, batch := range lt.History(prefix).Example(seed) {
		f.clock.SetTime(batch.Now)
		commands := r.numbered(plain, batch.Commands)
		want := plain.Decide(batch.Now, batch.Commands...)
		got, err := f.store.SubmitAll(t.Context(), commands)
		if err != nil {
			t.Fatalf("seed %d, batch %d: %v", seed, n, err)
		}
		for i := range want {
			if diff := cmp.Diff(want[i], slow.Answer(got[i])); diff != "" {
				t.Fatalf("seed %d, batch %d, %#v: slow - database +: %s", seed, n, batch.Commands[i], diff)
			}
		}
		wantRows, gotRows := plain.Rows(), r.rows()
		for i := range min(len(wantRows.Entries), len(gotRows.Entries)) { // numbers are the database's
			gotRows.Entries[i].Corrects = wantRows.Entries[i].Corrects
		}
		if diff := cmp.Diff(wantRows, gotRows); diff != "" {
			t.Fatalf("seed %d, after batch %d, %#v: slow - database +: %s", seed, n, batch.Commands, diff)
		}
		lastVerdictShowsRows(t, got[len(got)-1], gotRows)
	}
}

// lastVerdictShowsRows compares the rows beside the last answer of a batch with what was stored.
func lastVerdictShowsRows(t *testing.T, last ledger.Verdict, stored slow.Rows) {
	t.Helper()
	shown := slow.NewRows()
	if last.Account != nil {
		shown.AddAccount(*last.Account)
	}
	if last.Reservation != nil {
		shown.AddReservation(*last.Reservation)
	}
	if last.Allocation != nil {
		shown.AddAllocation(*last.Allocation)
	}
	for name, row := range shown.Accounts {
		row.DueAt = stored.Accounts[name].DueAt // settled at the end of the batch
		if diff := cmp.Diff(stored.Accounts[name], row); diff != "" {
			t.Fatalf("the verdict shows another account %s: stored - shown +: %s", name, diff)
		}
	}
	for uid, row := range shown.Reservations {
		if diff := cmp.Diff(stored.Reservations[uid], row); diff != "" {
			t.Fatalf("the verdict shows another reservation %s: stored - shown +: %s", uid, diff)
		}
	}
	for pod, row := range shown.Allocations {
		if diff := cmp.Diff(stored.Allocations[pod], row); diff != "" {
			t.Fatalf("the verdict shows another allocation %s: stored - shown +: %s", pod, diff)
		}
	}
}

// rowReader reads what belongs to a history past the store, as another client of the database.
type rowReader struct {
	*testing.T
	conn   *pgx.Conn
	prefix string // as a pattern
}

// numbered gives adjustments the number that the database gave the entry that they correct.
func (r *rowReader) numbered(plain *slow.Ledger, commands []ledger.Command) []ledger.Command {
	numbered := make([]ledger.Command, len(commands))
	for i, command := range commands {
		numbered[i] = command
		c, ok := command.(ledger.Adjust)
		if !ok || c.Corrects == 0 {
			continue
		}
		number := int64(1) << 60 // nobody's
		if c.Corrects <= int64(plain.Count()) {
			kind, key := plain.EntryKey(c.Corrects)
			if err := r.conn.QueryRow(r.Context(), "SELECT id FROM entry WHERE kind = $1 AND event_key = $2", string(kind), key).Scan(&number); err != nil {
				r.Fatalf("entry %s %s: %v", kind, key, err)
			}
		}
		c.Corrects = number
		numbered[i] = c
	}
	return numbered
}

func (r *rowReader) rows() slow.Rows {
	rows := slow.NewRows()
	each(r, rows.AddAccount, `SELECT row_to_json(r) FROM (
		SELECT name AS "Name", COALESCE(parent, '') AS "Parent", policy::json AS "Policy", policy_version AS "PolicyVersion", frozen AS "Frozen",
		       balance AS "Balance", reserved AS "Reserved", held AS "Held", charged AS "Charged", running AS "Running",
		       subtree_balance AS "SubtreeBalance", subtree_reserved AS "SubtreeReserved", subtree_held AS "SubtreeHeld",
		       subtree_running AS "SubtreeRunning", subtree_overspent AS "SubtreeOverspent", subtree_spent AS "SubtreeSpent",
		       spent_since AS "SpentSince", refilled_at AS "RefilledAt", last_entry_at AS "LastEntryAt", due_at AS "DueAt"
		FROM account WHERE name LIKE $1) r`)
	each(r, rows.AddLot, `SELECT row_to_json(r) FROM (
		SELECT key AS "Key", account AS "Account", amount AS "Amount", free AS "Free", held AS "Held", expired AS "Expired", expires_at AS "ExpiresAt"
		FROM lot WHERE account LIKE $1) r`)
	each(r, rows.AddReservation, `SELECT row_to_json(r) FROM (
		SELECT uid AS "UID", account AS "Account", payer AS "Payer", policy_version AS "PolicyVersion",
		       json_build_object('Kind', workload_kind, 'Namespace', workload_namespace, 'Name', workload_name) AS "Workload",
		       class AS "Class", rate_version AS "RateVersion", rate AS "Rate", max_gpus AS "MaxGPUs", gpu_seconds AS "GPUSeconds",
		       amount AS "Amount", NULLIF(takes, '')::json AS "Takes", charged AS "Charged", state AS "State", reason AS "Reason",
		       created_at AS "CreatedAt", closed_at AS "ClosedAt"
		FROM reservation WHERE uid LIKE $1) r`)
	each(r, rows.AddAllocation, `SELECT row_to_json(r) FROM (
		SELECT pod_uid AS "PodUID", json_build_object('Kind', 'Pod', 'Namespace', pod_namespace, 'Name', pod_name) AS "Pod",
		       reservation AS "Reservation", account AS "Account", node AS "Node", class AS "Class", rate_version AS "RateVersion",
		       rate AS "Rate", gpus AS "GPUs", NULLIF(gpu_uuids, '{}') AS "GPUUUIDs", leader_epoch AS "LeaderEpoch", state AS "State",
		       intended_at AS "IntendedAt", started_at AS "StartedAt", ended_at AS "EndedAt", last_seen AS "LastSeen",
		       charged AS "Charged", refunded AS "Refunded", refunded_for AS "RefundedFor"
		FROM allocation WHERE pod_uid LIKE $1) r`)
	each(r, rows.AddInterval, `SELECT row_to_json(r) FROM (
		SELECT pod_uid AS "PodUID", started_at AS "Start", ended_at AS "End", source AS "Source", charge AS "Charge", received_at AS "ReceivedAt"
		FROM metered_interval WHERE pod_uid LIKE $1) r`)
	each(r, rows.AddDevice, `SELECT row_to_json(r) FROM (
		SELECT gpu_uuid AS "GPUUUID", pod_uid AS "PodUID", started_at AS "Start", ended_at AS "End" FROM device_hold WHERE pod_uid LIKE $1) r`)
	each(r, rows.AddEntry, `SELECT row_to_json(r) FROM (
		SELECT event_key AS "Key", kind AS "Kind", debit AS "Debit", credit AS "Credit", amount AS "Amount",
		       COALESCE(spender, '') AS "Spender", COALESCE(reservation, '') AS "Reservation", COALESCE(allocation, '') AS "Allocation",
		       COALESCE(corrects, 0) AS "Corrects", NULLIF(draws, '')::json AS "Draws", occurred_at AS "OccurredAt",
		       recorded_at AS "RecordedAt", reason AS "Reason", actor AS "Actor"
		FROM entry WHERE debit LIKE $1 OR credit LIKE $1 OR spender LIKE $1 ORDER BY id) r`)
	each(r, rows.AddDiscrepancy, `SELECT row_to_json(r) FROM (
		SELECT key AS "Key", kind AS "Kind", pod_uid AS "PodUID", account AS "Account", found_at AS "FoundAt", resolved_at AS "ResolvedAt"
		FROM discrepancy WHERE pod_uid LIKE $1) r`)
	return rows
}

// each reads rows as JSON, whose names are those of the fields.
func each[T any](r *rowReader, add func(T), statement string) {
	r.Helper()
	rows, err := r.conn.Query(r.Context(), strings.TrimSpace(statement), r.prefix)
	if err != nil {
		r.Fatal(err)
	}
	texts, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	if err != nil {
		r.Fatal(err)
	}
	for _, text := range texts {
		var row T
		if err := json.Unmarshal(text, &row); err != nil {
			r.Fatalf("%s: %v", text, err)
		}
		add(row)
	}
}
