package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// ErrQueueFull says that more commands wait than Options.QueueLimit allows. Nothing was queued; back off and repeat.
var ErrQueueFull = errors.New("ledger queue is full; back off and repeat")

// ErrClosed says that the store was closed before the command was decided.
var ErrClosed = errors.New("ledger store is closed")

// UnavailableError says that no answer came while the caller waited. It is never a refusal. The command may have been
// executed all the same, or be executed yet: repeating it with the same key is safe, and tells.
type UnavailableError struct {
	// Cause is what PostgreSQL or the network said last, or the caller's context error if there was nothing.
	Cause error
}

func (e *UnavailableError) Error() string {
	return fmt.Sprintf("ledger gave no answer, repeat with the same key: %v", e.Cause)
}
func (e *UnavailableError) Unwrap() error { return e.Cause }

// ConstraintError says that the database refused a write that breaks an invariant. It is no refusal of the ledger's:
// Decide let it pass, or another client changed rows behind its back. Run an audit.
type ConstraintError struct {
	Constraint string // its name, a sentence
	Invariant  string // what it guards, e.g. "I3"
	Cause      error
}

func (e *ConstraintError) Error() string {
	return fmt.Sprintf("database constraint %s (%s) refuses the write; run an audit: %v", e.Constraint, e.Invariant, e.Cause)
}
func (e *ConstraintError) Unwrap() error { return e.Cause }

// invariantOf says which invariant a constraint or trigger guards, table by table; "schema" where it is only that a value is one
// that there is. A test compares the names with the schema's.
var invariantOf = map[string]string{
	"account_charged_is_not_negative":         "I2",
	"account_holds_and_runs_nothing_negative": "I2",
	"account_is_not_its_own_parent":           "schema",
	"account_name_is_a_dns_subdomain":         "schema",
	"account_policy_counts_from_one":          "schema",
	"account_reserves_nothing_negative":       "I1",
	"account_that_pays_stays":                 "I9",
	"account_with_entries_stays":              "I8",
	"account_with_reservations_stays":         "I5",
	"policy_version_is_never_edited":          "I8",
	"rate_is_positive":                        "I4",
	"rate_version_counts_from_one":            "schema",
	"rate_version_is_never_edited":            "I4",
	"lot_has_no_more_than_its_amount":         "I2",
	"lot_has_nothing_negative":                "I2",
	"lot_is_never_deleted":                    "I2",
	"lot_terms_never_change":                  "I2",
	"reservation_amount_is_its_price":         "I4",
	"reservation_amount_is_not_negative":      "I1",
	"reservation_charged_is_not_negative":     "I2",
	"reservation_ends_once":                   "I5",
	"reservation_is_closed_when_it_ends":      "I5",
	"reservation_is_never_deleted":            "I5",
	"reservation_names_what_exists":           "I2",
	"reservation_pkey":                        "I6",
	"reservation_price_is_its_pods":           "I4",
	"reservation_state_is_known":              "I5",
	"reservation_terms_never_change":          "I5",
	"allocation_charged_is_not_negative":      "I2",
	"allocation_ends_after_its_start":         "I4",
	"allocation_has_gpus":                     "I4",
	"allocation_has_no_end_before_it_ended":   "I5",
	"allocation_is_metered_from_its_start":    "I4",
	"allocation_is_never_deleted":             "I9",
	"allocation_is_refunded_once":             "I6",
	"allocation_moves_by_the_rules":           "I5",
	"allocation_names_its_reservation":        "I2",
	"allocation_refund_cause_is_known":        "schema",
	"allocation_refund_is_within_its_charge":  "I10",
	"allocation_state_is_known":               "I5",
	"allocation_terms_never_change":           "I4",
	"interval_charge_is_not_negative":         "I4",
	"interval_is_never_edited":                "I3",
	"interval_is_not_empty":                   "I3",
	"interval_names_its_allocation":           "I3",
	"interval_overlaps_no_other_of_its_pod":   "I3",
	"interval_source_is_known":                "schema",
	"metered_interval_pkey":                   "I3",
	"interval_is_expanded_before_it_goes":     "I3",
	"compacted_time_has_whole_runs":           "I3",
	"compacted_time_is_never_edited":          "I3",
	"compacted_time_is_never_truncated":       "I3",
	"compacted_time_names_its_allocation":     "I3",
	"compacted_time_takes_time":               "I3",
	"device_hold_is_not_empty":                "I3",
	"device_hold_names_its_allocation":        "I3",
	"entry_adjustment_has_a_reason":           "I8",
	"entry_amount_is_positive":                "I10",
	"entry_charge_names_its_allocation":       "I2",
	"entry_corrects_by_adjustment":            "I8",
	"entry_is_append_only":                    "I8",
	"entry_is_never_truncated":                "I8",
	"entry_key_is_used_once":                  "I6",
	"entry_kind_is_known":                     "I10",
	"entry_sides_differ":                      "I10",
	"discrepancy_is_closed_with_a_reason":     "I8",
	"discrepancy_is_never_deleted":            "I3",
	"discrepancy_keeps_both_sides":            "I3",
	"command_hash_is_sha256":                  "I6",
	"command_is_never_edited":                 "I6",
	"command_key_is_used_once":                "I6",
	"device_fault_has_a_code":                 "I8",
	"device_fault_is_append_only":             "I8",
	"device_fault_is_reported_once":           "I6",
	"device_fault_takes_time":                 "I8",
	"preemption_is_append_only":               "I8",
	"preemption_is_recorded_once":             "I6",
	"preemption_loses_nothing_negative":       "I8",
	"preemption_outcome_is_append_only":       "I8",
	"preemption_outcome_is_found_once":        "I6",
	"preemption_outcome_names_a_preemption":   "I8",
	"preemption_finds_nothing_negative":       "I8",
	"preemption_reason_is_known":              "schema",
	"preemption_stops_another":                "I8",
	"seal_counts_from_one":                    "I8",
	"seal_follows_the_one_before":             "I8",
	"seal_hash_is_sha256":                     "I8",
	"seal_is_append_only":                     "I8",
	"seal_is_never_truncated":                 "I8",
	"seal_progress_is_never_deleted":          "I8",
	"seal_progress_is_one_row":                "I8",
	"leadership_epoch_only_grows":             "I7",
	"leadership_is_never_forgotten":           "I7",
	"node_agent_epoch_only_grows":             "I7",
	"node_agent_is_never_forgotten":           "I7",
	"ledger_schema_is_one_row":                "schema",
}

// failure says what a failed transaction is followed by.
type failure int

const (
	// failureConflict: another process was quicker, or a deadlock was broken. Repeat at once; the repetition sees what
	// the other one did.
	failureConflict failure = iota
	// failureAway: PostgreSQL is unreachable, starting, stopping, read-only, overloaded, too slow or not migrated yet.
	// Repeat after a pause, as long as somebody waits.
	failureAway
	// failureConstraint and failureOther concern single commands: decide them one by one and tell whose they are.
	failureConstraint
	failureOther
)

// faultError is a fault on this side of the connection: rows that contradict each other, a value that cannot be sent.
// Repeating would not help, and must not keep others waiting.
type faultError struct{ cause error }

func (e *faultError) Error() string { return "ledger fault: " + e.cause.Error() }
func (e *faultError) Unwrap() error { return e.cause }

// brokenConstraint reports whether a constraint or trigger refused the write.
func brokenConstraint(err error) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && server.ConstraintName != ""
}

// stalePlan is feature_not_supported, which PostgreSQL answers when a prepared statement's columns have changed: "cached plan
// must not change result type". On a new connection the statement is prepared anew.
const stalePlan = "0A000"

// errStaleLocks says that the rows read after locking refer to accounts that were not locked: a parent changed, or a
// reservation or allocation appeared, between the snapshot and the lock.
var errStaleLocks = errors.New("an account's ancestors changed while they were being locked")

// errKeptUp says that upkeep compacted or forgot rows between their reading and their change.
var errKeptUp = errors.New("upkeep was at these rows meanwhile")

// errNotNew says that a hold which was taken to be new was refused: it may be known already, and then has another answer.
var errNotNew = errors.New("a hold that was taken to be new was refused")

// overtaken reports whether a batch has to be repeated because what it knew, or took for granted, is not so.
func overtaken(err error) bool {
	return errors.Is(err, errStaleLocks) || errors.Is(err, errKeptUp) || errors.Is(err, errNotNew)
}

// classify is the one place where the database's errors get their meaning.
func classify(err error) failure {
	if overtaken(err) {
		return failureConflict
	}
	if fault := new(faultError); errors.As(err, &fault) {
		return failureOther
	}
	var server *pgconn.PgError
	if !errors.As(err, &server) {
		// No server error and no fault of ours: the connection, the network, a deadline.
		return failureAway
	}
	if schema := new(SchemaError); errors.As(err, &schema) {
		return failureAway
	}
	switch server.Code {
	case "40001", // serialization_failure
		"40P01", // deadlock_detected
		"23505", // unique_violation: another process inserted the row first, the repetition finds it
		"23P01", // exclusion_violation, likewise
		"23503": // foreign_key_violation: the row it refers to went away first
		return failureConflict
	case "23514", "23502": // check_violation (also what our triggers raise), not_null_violation
		return failureConstraint
	case "57014", // query_canceled: statement_timeout
		"55P03",                   // lock_not_available: lock_timeout
		"25P03",                   // idle_in_transaction_session_timeout
		"25006",                   // read_only_sql_transaction: a standby
		"42P01", "42703", "42883", // undefined_table, undefined_column, undefined_function: not migrated yet
		stalePlan, // it was migrated while this was connected
		"3D000",   // invalid_catalog_name: the database is not created yet
		"28P01",   // invalid_password: it is being rotated
		"28000":   // invalid_authorization_specification
		return failureAway
	}
	switch server.Code[:2] {
	case "08", "53", "57", "58", "XX": // connection, resources, operator intervention, system, internal
		return failureAway
	}
	return failureOther
}

// meaning turns a database error into the error that callers see.
func meaning(err error) error {
	var server *pgconn.PgError
	if brokenConstraint(err) && errors.As(err, &server) {
		invariant := invariantOf[server.ConstraintName]
		if invariant == "" {
			invariant = "schema"
		}
		return &ConstraintError{Constraint: server.ConstraintName, Invariant: invariant, Cause: err}
	}
	if kind := classify(err); kind == failureAway || kind == failureConflict {
		return &UnavailableError{Cause: err}
	}
	return err
}

// unavailable is what a caller gets whose context ended: with the last failure if there was one.
func unavailable(ctx context.Context, last error) error {
	if last == nil {
		return &UnavailableError{Cause: ctx.Err()}
	}
	return &UnavailableError{Cause: fmt.Errorf("%w (%w)", ctx.Err(), last)}
}
