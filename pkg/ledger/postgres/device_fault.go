package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// RecordDeviceFaults keeps what the agent of a node reports under its epoch. Repeats change nothing. current is false, and
// nothing is kept, when a newer agent of the node has registered (I7). Times are kept to the microsecond.
func (s *Store) RecordDeviceFaults(ctx context.Context, node string, epoch int64, faults []ledger.DeviceFault) (current bool, err error) {
	var (
		gpus      = make([]string, len(faults))
		xids      = make([]int64, len(faults))
		since, at = make([]time.Time, len(faults)), make([]time.Time, len(faults))
	)
	for i, fault := range faults {
		gpus[i], xids[i], since[i], at[i] = fault.GPUUUID, fault.XID, ledger.Instant(fault.Since), ledger.Instant(fault.At)
	}
	_, current, err = readOne(ctx, s, "DeviceFaultRecord", pgx.RowTo[string], node, epoch, gpus, xids, since, at, ledger.Instant(s.clock.Now()))
	if err != nil {
		return false, fmt.Errorf("keep %d device faults of node %s: %w", len(faults), node, err)
	}
	return current, nil
}

// DeviceFaults reads what a node reported of its GPUs that may have happened within [from, to], in the order of time.
func (s *Store) DeviceFaults(ctx context.Context, node string, from, to time.Time) ([]ledger.DeviceFault, error) {
	return readAll(ctx, s, "DeviceFaultsOfNode", scanDeviceFault, node, from, to)
}

func scanDeviceFault(row pgx.CollectableRow) (f ledger.DeviceFault, err error) {
	err = row.Scan(&f.Node, &f.GPUUUID, &f.XID, &f.Since, &f.At)
	f.Since, f.At = f.Since.UTC(), f.At.UTC()
	return f, err
}
