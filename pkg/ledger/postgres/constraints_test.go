package postgres_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/gpubank/gpubank/pkg/ledger"
	lt "github.com/gpubank/gpubank/pkg/ledger/ledgertest"
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
	for _, c := range []struct{ constraint, statement string }{
		{"entry_is_append_only", "UPDATE entry SET amount = amount + 1"},
		{"entry_is_append_only", "DELETE FROM entry"},
		{"entry_is_never_truncated", "TRUNCATE entry"},
		{"entry_sides_differ", "INSERT INTO entry (kind, event_key, debit, credit, amount, occurred_at, recorded_at, reason, actor) VALUES ('Grant', 'x', 'team', 'team', 1, now(), now(), '', '')"},
		{"entry_amount_is_positive", "INSERT INTO entry (kind, event_key, debit, credit, amount, occurred_at, recorded_at, reason, actor) VALUES ('Grant', 'x', 'system:issuance', 'team', 0, now(), now(), '', '')"},
		{"entry_key_is_used_once", "INSERT INTO entry (kind, event_key, debit, credit, amount, occurred_at, recorded_at, reason, actor) VALUES ('Grant', 'grant:team', 'system:issuance', 'team', 5, now(), now(), '', '')"},
		{"reservation_ends_once", "UPDATE reservation SET state = 'Settled' WHERE uid = 'idle'"},
		{"reservation_ends_once", "UPDATE reservation SET state = 'Held', closed_at = NULL WHERE uid = 'idle'"},
		{"reservation_is_closed_when_it_ends", "UPDATE reservation SET state = 'Settled' WHERE uid = 'job'"},
		{"reservation_terms_never_change", "UPDATE reservation SET max_gpus = 100 WHERE uid = 'job'"},
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
	} {
		_, err := conn.Exec(t.Context(), c.statement)
		var server *pgconn.PgError
		if !errors.As(err, &server) || server.ConstraintName != c.constraint {
			t.Errorf("%s\n  want the refusal of %s, got %v", c.statement, c.constraint, err)
		}
	}
	// An account with a history stays, by whichever constraint comes first.
	if _, err := conn.Exec(t.Context(), "DELETE FROM account WHERE name = 'team'"); err == nil {
		t.Error("an account with entries and reservations was deleted")
	}
}
