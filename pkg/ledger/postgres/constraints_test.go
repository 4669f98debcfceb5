package postgres_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/gpubank/gpubank/pkg/ledger"
	lt "github.com/gpubank/gpubank/pkg/ledger/ledgertest"
	"github.com/gpubank/gpubank/pkg/ledger/postgres"
)

// The database lets through what ledger/transitions.go allows in one or more steps, and nothing else.
func TestTransitionsInSQL(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	conn, err := pgx.Connect(t.Context(), f.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	ask := func(function, from, to string) (allowed bool) {
		if err := conn.QueryRow(t.Context(), "SELECT "+function+"($1, $2)", from, to).Scan(&allowed); err != nil {
			t.Fatal(err)
		}
		return allowed
	}
	for _, from := range ledger.ReservationStates {
		for _, to := range ledger.ReservationStates {
			want := from != to && reachable(from, to, ledger.ReservationStates, ledger.ReservationState.MayBecome)
			if got := ask("reservation_may_reach", string(from), string(to)); got != want {
				t.Errorf("reservation %s to %s: SQL says %v, Go %v", from, to, got, want)
			}
		}
	}
	for _, from := range ledger.AllocationStates {
		for _, to := range ledger.AllocationStates {
			want := from != to && reachable(from, to, ledger.AllocationStates, ledger.AllocationState.MayBecome)
			if got := ask("allocation_may_reach", string(from), string(to)); got != want {
				t.Errorf("allocation %s to %s: SQL says %v, Go %v", from, to, got, want)
			}
		}
	}
}

// reachable walks the transitions from one state.
func reachable[S comparable](from, to S, states []S, mayBecome func(S, S) bool) bool {
	seen := map[S]bool{from: true}
	for changed := true; changed; {
		changed = false
		for _, a := range states {
			for _, b := range states {
				if seen[a] && !seen[b] && mayBecome(a, b) {
					seen[b], changed = true, true
				}
			}
		}
	}
	return seen[to]
}

// Another client of the database, with the ledger's own rights, cannot break the invariants.
func TestConstraintsAgainstOtherClients(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.teamWith("team", 1_000)
	f.do(lt.Hold("job", "team", 1, 100), lt.Hold("idle", "team", 1, 100), lt.Allocate("pod", "job", "team", 1), lt.Interval("pod", 0, 0, 10),
		ledger.CloseReservation{Key: "close:idle", UID: "idle", Outcome: ledger.Released})
	conn, err := pgx.Connect(t.Context(), f.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	refuses(t, conn, []guard{
		{"entry_is_append_only", "UPDATE entry SET amount = amount + 1"},
		{"entry_is_append_only", "DELETE FROM entry"},
		{"entry_is_never_truncated", "TRUNCATE entry"},
		{"entry_sides_differ", "INSERT INTO entry (kind, event_key, debit, credit, amount, occurred_at, recorded_at, reason, actor) VALUES ('Grant', 'x', 'team', 'team', 1, now(), now(), '', '')"},
		{"entry_amount_is_positive", "INSERT INTO entry (kind, event_key, debit, credit, amount, occurred_at, recorded_at, reason, actor) VALUES ('Grant', 'x', 'system:issuance', 'team', 0, now(), now(), '', '')"},
		{"entry_key_is_used_once", "INSERT INTO entry (kind, event_key, debit, credit, amount, occurred_at, recorded_at, reason, actor) VALUES ('Grant', 'grant:team', 'system:issuance', 'team', 5, now(), now(), '', '')"},
		{"reservation_ends_once", "UPDATE reservation SET state = 'Settled' WHERE uid = 'idle'"},
		{"reservation_ends_once", "UPDATE reservation SET state = 'Held', closed_at = NULL WHERE uid = 'idle'"},
		{"reservation_is_closed_when_it_ends", "UPDATE reservation SET state = 'Settled' WHERE uid = 'job'"},
		{"reservation_terms_never_change", "UPDATE reservation SET max_gpus = 100 WHERE uid = 'idle'"},
		{"reservation_is_never_deleted", "DELETE FROM reservation WHERE uid = 'idle'"},
		{"allocation_moves_by_the_rules", "UPDATE allocation SET state = 'Intended' WHERE pod_uid = 'pod'"},
		{"allocation_terms_never_change", "UPDATE allocation SET started_at = started_at + interval '1s' WHERE pod_uid = 'pod'"},
		{"account_reserves_nothing_negative", "UPDATE account SET reserved = -1 WHERE name = 'team'"},
		{"account_name_is_a_dns_subdomain", "INSERT INTO account (name, revision) VALUES ('system:x', 1)"},
		{"account_is_not_its_own_parent", "UPDATE account SET parent = name WHERE name = 'team'"},
		{"interval_overlaps_no_other_of_its_pod", "INSERT INTO metered_interval SELECT pod_uid, started_at + interval '1s', ended_at, source, charge, received_at FROM metered_interval"},
		{"interval_is_not_empty", "INSERT INTO metered_interval SELECT pod_uid, ended_at, ended_at, source, charge, received_at FROM metered_interval"},
		{"rate_version_is_never_edited", "UPDATE rate SET rate = 1"},
		{"command_is_never_edited", "UPDATE command SET verdict = '{}'"},
		{"command_key_is_used_once", "INSERT INTO command SELECT * FROM command"},
		{"leadership_epoch_only_grows", "UPDATE leadership SET epoch = 1"},
		{"leadership_is_never_forgotten", "DELETE FROM leadership"},
		{"node_agent_epoch_only_grows", "UPDATE node_agent SET epoch = 0"},
		{"node_agent_is_never_forgotten", "DELETE FROM node_agent"},
		{"allocation_is_never_deleted", "DELETE FROM allocation"},
	})
	// An account with a history stays, by whichever constraint comes first.
	if _, err := conn.Exec(t.Context(), "DELETE FROM account WHERE name = 'team'"); err == nil {
		t.Error("an account with entries and reservations was deleted")
	}
}

// guard is a constraint or trigger, and a statement that it refuses.
type guard struct{ name, statement string }

func refuses(t *testing.T, conn *pgx.Conn, guards []guard) {
	t.Helper()
	for _, g := range guards {
		_, err := conn.Exec(t.Context(), g.statement)
		var server *pgconn.PgError
		if !errors.As(err, &server) || server.ConstraintName != g.name {
			t.Errorf("%s\n  want the refusal of %s, got %v", g.statement, g.name, err)
		}
	}
}

// The same for what keeps the rules of accounts: lots, refunds, corrections, policies, payers.
func TestRuleConstraintsAgainstOtherClients(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.teamWith("team", 1_000)
	policy := lt.Account("team", "", 0)
	policy.Key, policy.Policy.Refunds = "policy:2", ledger.RefundPolicy{FailedPercent: 50}
	child := lt.Account("child", "payer", 0)
	child.Policy.Funding = ledger.FundingAncestor
	lot := lt.Grant("lot", "team", 10)
	lot.ExpiresAt = f.clock.Now().Add(time.Hour)
	end := lt.End("pod", 0, 10)
	end.EndUnknown = true
	f.do(policy, lot, lt.Hold("job", "team", 1, 100), lt.Allocate("pod", "job", "team", 1), end,
		ledger.Refund{Key: "refund", PodUID: "pod", Cause: ledger.RefundFailed},
		lt.Account("payer", "", 20*ledger.Credit), child, lt.Hold("paid", "child", 1, 20))
	f.do(ledger.Adjust{Key: "close", Account: "team", Discrepancy: "end-unknown:pod", Reason: "seen"},
		ledger.Adjust{Key: "correct", Account: "team", Amount: 1, Corrects: 1, Reason: "wrong"})
	conn, err := pgx.Connect(t.Context(), f.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	const entry = "INSERT INTO entry (kind, event_key, debit, credit, amount, spender, reservation, allocation, corrects, occurred_at, recorded_at, reason, actor) VALUES "
	refuses(t, conn, []guard{
		{"account_holds_and_runs_nothing_negative", "UPDATE account SET held = -1 WHERE name = 'team'"},
		{"account_holds_and_runs_nothing_negative", "UPDATE account SET running = -1 WHERE name = 'team'"},
		{"account_holds_and_runs_nothing_negative", "UPDATE account SET subtree_held = -1 WHERE name = 'team'"},
		{"account_holds_and_runs_nothing_negative", "UPDATE account SET subtree_running = -1 WHERE name = 'team'"},
		{"account_policy_counts_from_one", "UPDATE account SET policy_version = 0 WHERE name = 'team'"},
		{"account_policy_pkey", "INSERT INTO account_policy SELECT * FROM account_policy"},
		{"policy_version_is_never_edited", "UPDATE account_policy SET policy = '{}' WHERE account = 'team'"},
		{"account_that_pays_stays", "UPDATE account SET parent = NULL WHERE name = 'child'; DELETE FROM account WHERE name = 'payer'"},
		{"reservation_terms_never_change", "UPDATE reservation SET payer = 'child' WHERE uid = 'paid'"},
		{"reservation_price_is_its_pods", "UPDATE reservation SET rate = rate + 1, amount = amount + gpu_seconds WHERE uid = 'job'"},
		{"reservation_amount_is_its_price", "UPDATE reservation SET amount = amount + 1 WHERE uid = 'job'"},
		{"allocation_refund_is_within_its_charge", "INSERT INTO allocation SELECT 'pod2', pod_namespace, pod_name, reservation, account, node, class, rate_version, rate, gpus, gpu_uuids, leader_epoch, state, intended_at, started_at, ended_at, last_seen, charged, charged + 1, 'Failed' FROM allocation"},
		{"allocation_refund_cause_is_known", "INSERT INTO allocation SELECT 'pod2', pod_namespace, pod_name, reservation, account, node, class, rate_version, rate, gpus, gpu_uuids, leader_epoch, state, intended_at, started_at, ended_at, last_seen, charged, 0, 'Kindness' FROM allocation"},
		{"allocation_is_refunded_once", "UPDATE allocation SET refunded = charged"},
		{"allocation_is_refunded_once", "UPDATE allocation SET refunded = 0, refunded_for = ''"},
		{"entry_kind_is_known", entry + "('Gift', 'x', 'system:issuance', 'team', 1, NULL, NULL, NULL, NULL, now(), now(), '', '')"},
		{"entry_key_is_used_once", entry + "('Refund', 'refund:pod', 'system:revenue', 'team', 1, 'team', 'job', 'pod', NULL, now(), now(), '', '')"},
		{"entry_charge_names_its_allocation", entry + "('Refund', 'x', 'system:revenue', 'team', 1, 'team', 'job', NULL, NULL, now(), now(), '', '')"},
		{"entry_charge_names_its_allocation", entry + "('Charge', 'x', 'team', 'system:revenue', 1, NULL, 'job', 'pod', NULL, now(), now(), '', '')"},
		{"entry_charge_names_its_allocation", entry + "('Grant', 'x', 'system:issuance', 'team', 1, 'team', 'job', 'pod', NULL, now(), now(), '', '')"},
		{"entry_adjustment_has_a_reason", entry + "('Adjustment', 'x', 'team', 'system:adjustments', 1, NULL, NULL, NULL, NULL, now(), now(), '', '')"},
		{"entry_corrects_by_adjustment", entry + "('Grant', 'x', 'system:issuance', 'team', 1, NULL, NULL, NULL, 1, now(), now(), '', '')"},
		{"entry_sides_differ", entry + "('Transfer', 'x', 'team', 'team', 1, NULL, NULL, NULL, NULL, now(), now(), '', '')"},
		{"lot_has_nothing_negative", "UPDATE lot SET free = -1"},
		{"lot_has_nothing_negative", "UPDATE lot SET held = -1"},
		{"lot_has_nothing_negative", "UPDATE lot SET expired = -1"},
		{"lot_has_no_more_than_its_amount", "UPDATE lot SET free = amount + 1"},
		{"lot_has_no_more_than_its_amount", "UPDATE lot SET free = 9223372036854775807, held = 9223372036854775807"},
		{"lot_has_no_more_than_its_amount", "INSERT INTO lot VALUES ('empty', 'team', 0, 0, 0, 0, now())"},
		{"lot_account_fkey", "INSERT INTO lot VALUES ('nobody', 'nobody', 1, 1, 0, 0, now())"},
		{"lot_pkey", "INSERT INTO lot SELECT * FROM lot"},
		{"lot_terms_never_change", "UPDATE lot SET expires_at = expires_at + interval '1 year'"},
		{"lot_terms_never_change", "UPDATE lot SET account = 'payer'"},
		{"lot_terms_never_change", "UPDATE lot SET amount = amount + 1"},
		{"lot_is_never_deleted", "DELETE FROM lot"},
		{"spending_pkey", "INSERT INTO spending SELECT * FROM spending"},
		{"discrepancy_is_closed_with_a_reason", "INSERT INTO discrepancy (key, kind, pod_uid, account, ledger, other, found_at, resolved_at) VALUES ('x', 'EndUnknown', '', '', '', '', now(), now())"},
		{"discrepancy_keeps_both_sides", "UPDATE discrepancy SET other = 'nothing'"},
		{"discrepancy_keeps_both_sides", "UPDATE discrepancy SET resolved_at = NULL, resolution = '', resolved_by = ''"},
		{"discrepancy_is_never_deleted", "DELETE FROM discrepancy"},
		{"reservation_names_what_exists", "INSERT INTO reservation SELECT 'other', 'nobody', workload_kind, workload_namespace, workload_name, class, rate_version, rate, max_gpus, gpu_seconds, amount, charged, state, reason, created_at, closed_at, payer FROM reservation WHERE uid = 'job'"},
		{"allocation_names_its_reservation", "INSERT INTO allocation SELECT 'pod2', pod_namespace, pod_name, 'paid', account, node, class, rate_version, rate, gpus, gpu_uuids, leader_epoch, state, intended_at, started_at, ended_at, last_seen, 0 FROM allocation"},
		{"interval_names_its_allocation", "INSERT INTO metered_interval SELECT 'pod2', started_at, ended_at, source, charge, received_at FROM metered_interval"},
		{"interval_is_never_edited", "UPDATE metered_interval SET charge = 0"},
		{"device_hold_names_its_allocation", "INSERT INTO device_hold VALUES ('GPU', 'pod2', now(), now() + interval '1s')"},
		{"account_with_entries_stays", "DELETE FROM account WHERE name = 'team'"},
		{"account_with_reservations_stays", "DELETE FROM account WHERE name = 'child'"},
	})
}

// Every constraint and trigger that has a sentence for a name has an invariant for a ConstraintError to cite, and none is cited
// that is gone.
func TestEveryGuardIsExplained(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	inSchema := make(map[string]bool)
	for _, name := range queryAs(t, f, pgx.RowTo[string], `
		SELECT conname FROM pg_constraint c JOIN pg_class r ON r.oid = c.conrelid
		WHERE c.connamespace = 'public'::regnamespace AND r.relname <> 'goose_db_version' AND c.contype IN ('c', 'x', 'p', 'u', 'f')
		UNION SELECT tgname FROM pg_trigger WHERE NOT tgisinternal`) {
		inSchema[name] = true
		// Those that PostgreSQL names itself say nothing but "exists" and "is one of those".
		generated := strings.HasSuffix(name, "_pkey") || strings.HasSuffix(name, "_fkey") || strings.HasSuffix(name, "_not_null")
		if !generated && postgres.InvariantOf[name] == "" {
			t.Errorf("%s is not explained in errors.go", name)
		}
	}
	for name := range postgres.InvariantOf {
		if !inSchema[name] {
			t.Errorf("errors.go explains %s, which the schema does not have", name)
		}
	}
}
