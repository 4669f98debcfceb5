package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// Ping reports whether the ledger's database answers and is migrated; nil if so.
func (s *Store) Ping(ctx context.Context) error {
	_, _, err := s.Account(ctx, "ping")
	return err
}

// Quote decides a hold as Submit would now, and writes nothing.
func (s *Store) Quote(ctx context.Context, cmd ledger.PlaceHold) (ledger.Verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()
	commands := []ledger.Prepared{ledger.Prepare(cmd)}
	var verdict ledger.Verdict
	err := s.onConnection(ctx, func(conn *pgx.Conn) error {
		state, err := quotingLoad.load(ctx, conn, ledger.Instant(s.clock.Now()), footprintOf(commands, true, false), new(known))
		if err != nil {
			return err
		}
		out, err := decide(state, s.clock.Now(), commands)
		if err != nil {
			return err
		}
		verdict = out.Verdicts[0]
		_, err = conn.Exec(ctx, "ROLLBACK")
		return err
	})
	if err != nil {
		return ledger.Verdict{}, fmt.Errorf("quote a hold for workload %s: %w", cmd.UID, meaning(err))
	}
	return verdict, nil
}

// AcquireLeadership begins a new epoch of a leadership: from its return on, whatever the previous leader writes is
// refused as StaleEpoch, and what it wrote before is visible. Calling it again begins another epoch.
func (s *Store) AcquireLeadership(ctx context.Context, name, holder string) (epoch int64, err error) {
	return s.nextEpoch(ctx, "LeadershipAcquire", "leadership", name, holder)
}

// RegisterNodeAgent begins a new epoch of a node's metering, likewise.
func (s *Store) RegisterNodeAgent(ctx context.Context, node, holder string) (epoch int64, err error) {
	return s.nextEpoch(ctx, "NodeAgentRegister", "the agent of node", node, holder)
}

func (s *Store) nextEpoch(ctx context.Context, statement, what, name, holder string) (int64, error) {
	if name == "" {
		panic("postgres: an epoch needs a name")
	}
	epoch, found, err := readOne(ctx, s, statement, pgx.RowTo[int64], name, holder, ledger.Instant(s.clock.Now()))
	if err == nil && !found {
		err = errors.New("no row came back")
	}
	if err != nil {
		return 0, fmt.Errorf("begin an epoch of %s %s: %w", what, name, err)
	}
	return epoch, nil
}

// Account reads one account; false if there is none of that name.
func (s *Store) Account(ctx context.Context, name string) (ledger.Account, bool, error) {
	return readOne(ctx, s, "AccountGet", scanAccount, name)
}

// AccountsSince reads the accounts that changed after revision, ordered by Revision. Calling it again with the highest
// revision it returned never skips a change; a change that other transactions overtake may come a moment later.
func (s *Store) AccountsSince(ctx context.Context, revision int64) ([]ledger.Account, error) {
	changed, err := readAll(ctx, s, "AccountsSince", scanAccount, revision)
	if err != nil {
		return nil, err
	}
	_, err = readAll(ctx, s, "AccountsNudge", pgx.RowTo[int64])
	return changed, err
}

// AccountsDue reads at most limit accounts on which something falls due at or before until (see ledger.Account.DueAt) and
// that nobody has touched since, longest overdue first.
func (s *Store) AccountsDue(ctx context.Context, until time.Time, limit int) ([]ledger.Account, error) {
	return readAll(ctx, s, "AccountsDue", scanAccount, ledger.Instant(until), limit)
}

// Reservation reads a workload's reservation; false if it has none.
func (s *Store) Reservation(ctx context.Context, uid string) (ledger.Reservation, bool, error) {
	return readOne(ctx, s, "ReservationGet", scanReservation, uid)
}

// OpenReservations reads the reservations that set credits aside, oldest first.
func (s *Store) OpenReservations(ctx context.Context) ([]ledger.Reservation, error) {
	return readAll(ctx, s, "ReservationsOpen", scanReservation)
}

// Allocation reads a pod's allocation; false if it has none.
func (s *Store) Allocation(ctx context.Context, podUID string) (ledger.Allocation, bool, error) {
	return readOne(ctx, s, "AllocationGet", scanAllocation, podUID)
}

// OpenAllocations reads the allocations that may hold GPUs (Intended, Bound, Metering, Suspect), oldest first.
func (s *Store) OpenAllocations(ctx context.Context) ([]ledger.Allocation, error) {
	return readAll(ctx, s, "AllocationsOpen", scanAllocation)
}

// ReservationAllocations reads all attempts at a workload, oldest first.
func (s *Store) ReservationAllocations(ctx context.Context, uid string) ([]ledger.Allocation, error) {
	return readAll(ctx, s, "AllocationsOfReservation", scanAllocation, uid)
}

// LastMetered is the end of a pod's latest interval; false if it has none.
func (s *Store) LastMetered(ctx context.Context, podUID string) (time.Time, bool, error) {
	end, found, err := readOne(ctx, s, "IntervalLastEnd", pgx.RowTo[time.Time], podUID)
	return end.UTC(), found, err
}

// Discrepancies reads all disagreements kept for a person, oldest first.
func (s *Store) Discrepancies(ctx context.Context) ([]ledger.Discrepancy, error) {
	return readAll(ctx, s, "DiscrepancyAll", scanDiscrepancy)
}

func readOne[T any](ctx context.Context, s *Store, name string, scan pgx.RowToFunc[T], args ...any) (one T, found bool, err error) {
	all, err := readAll(ctx, s, name, scan, args...)
	if err != nil || len(all) == 0 {
		return one, false, err
	}
	return all[0], true, nil
}

func readAll[T any](ctx context.Context, s *Store, name string, scan pgx.RowToFunc[T], args ...any) ([]T, error) {
	rows, err := s.pool.Query(ctx, query(name), args...)
	if err == nil {
		var all []T
		if all, err = pgx.CollectRows(rows, scan); err == nil {
			return all, nil
		}
	}
	return nil, fmt.Errorf("read the ledger (%s): %w", name, meaning(err))
}
