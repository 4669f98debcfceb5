package postgres

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// Each scan function reads the columns that the statements of its table list, in their order.

func scanAccount(row pgx.CollectableRow) (a ledger.Account, err error) {
	err = row.Scan(&a.Name, &a.Parent, &a.Policy.OverdraftLimit, &a.Policy.DefaultMaxRuntimeSeconds,
		&a.Balance, &a.Reserved, &a.Charged, &a.SubtreeBalance, &a.SubtreeReserved, &a.SubtreeOverspent, &a.Revision)
	return a, err
}

func scanReservation(row pgx.CollectableRow) (r ledger.Reservation, err error) {
	var createdAt, closedAt *time.Time
	err = row.Scan(&r.UID, &r.Account, &r.Workload.Kind, &r.Workload.Namespace, &r.Workload.Name, &r.Class,
		&r.RateVersion, &r.Rate, &r.MaxGPUs, &r.GPUSeconds, &r.Amount, &r.Charged, &r.State, &r.Reason, &createdAt, &closedAt)
	r.CreatedAt, r.ClosedAt = fromNullable(createdAt), fromNullable(closedAt)
	return r, err
}

func scanAllocation(row pgx.CollectableRow) (a ledger.Allocation, err error) {
	var intendedAt, startedAt, endedAt, lastSeen *time.Time
	err = row.Scan(&a.PodUID, &a.Pod.Namespace, &a.Pod.Name, &a.Reservation, &a.Account, &a.Node, &a.Class,
		&a.RateVersion, &a.Rate, &a.GPUs, &a.GPUUUIDs, &a.LeaderEpoch, &a.State,
		&intendedAt, &startedAt, &endedAt, &lastSeen, &a.Charged)
	a.Pod.Kind = podKind
	a.IntendedAt, a.StartedAt = fromNullable(intendedAt), fromNullable(startedAt)
	a.EndedAt, a.LastSeen = fromNullable(endedAt), fromNullable(lastSeen)
	if len(a.GPUUUIDs) == 0 {
		a.GPUUUIDs = nil
	}
	return a, err
}

// podKind is the kind of every allocation's pod; it has no column.
const podKind = "Pod"

func scanInterval(row pgx.CollectableRow) (i ledger.Interval, err error) {
	err = row.Scan(&i.PodUID, &i.Start, &i.End, &i.Source, &i.Charge, &i.ReceivedAt)
	i.Start, i.End, i.ReceivedAt = i.Start.UTC(), i.End.UTC(), i.ReceivedAt.UTC()
	return i, err
}

func scanDevice(row pgx.CollectableRow) (h ledger.DeviceHold, err error) {
	err = row.Scan(&h.GPUUUID, &h.PodUID, &h.Start, &h.End)
	h.Start, h.End = h.Start.UTC(), h.End.UTC()
	return h, err
}

func scanDiscrepancy(row pgx.CollectableRow) (d ledger.Discrepancy, err error) {
	err = row.Scan(&d.Key, &d.Kind, &d.PodUID, &d.Account, &d.Ledger, &d.Other, &d.FoundAt)
	d.FoundAt = d.FoundAt.UTC()
	return d, err
}

func scanRate(row pgx.CollectableRow) (r ledger.RateVersion, err error) {
	err = row.Scan(&r.Class, &r.Version, &r.Rate)
	return r, err
}

func scanRemembered(row pgx.CollectableRow) (r ledger.Remembered, err error) {
	var hash []byte
	var verdict string
	if err := row.Scan(&r.Key, &hash, &verdict); err != nil {
		return r, err
	}
	if copy(r.ContentHash[:], hash) != len(r.ContentHash) {
		return r, fmt.Errorf("command %q has a content hash of %d bytes", r.Key, len(hash))
	}
	if err := json.Unmarshal([]byte(verdict), &r.Verdict); err != nil {
		return r, fmt.Errorf("read the verdict of command %q: %w", r.Key, err)
	}
	return r, nil
}

// column is one field of many rows: an array parameter of a set-based write.
func column[T, V any](rows []T, field func(*T) V) []V {
	values := make([]V, len(rows))
	for i := range rows {
		values[i] = field(&rows[i])
	}
	return values
}

// nullable maps the zero time to NULL.
func nullable(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func fromNullable(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}
