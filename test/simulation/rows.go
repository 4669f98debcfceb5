package simulation

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// rows is what the database says in the end, read past the store that wrote it.
type rows struct {
	accounts     map[string]accountRow
	reservations map[string]reservationRow
	allocations  map[string]allocationRow
	entries      []entryRow
	lots         map[string]lotRow
}

type accountRow struct {
	Name                            string
	Balance, Reserved, Held, Charge ledger.Microcredits
	Running                         int64
}

type reservationRow struct {
	UID, Account, Payer, Class, State string
	GPUSeconds, RateVersion           int64
	Rate                              ledger.Rate
	Amount, Charged                   ledger.Microcredits
}

type allocationRow struct {
	Pod, Reservation, State string
	RateVersion             int64
	Rate                    ledger.Rate
	GPUs                    int64
	StartedAt, EndedAt      *time.Time
	Charged, Refunded       ledger.Microcredits
}

type entryRow struct {
	ID                      int64
	Kind                    ledger.EntryKind
	Key, Debit, Credit, Pod string
	Amount                  ledger.Microcredits
	OccurredAt, RecordedAt  time.Time
}

type lotRow struct {
	Key, Account                string
	Amount, Free, Held, Expired ledger.Microcredits
	ExpiresAt                   time.Time
}

func readRows(ctx context.Context, url string) (all rows, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return rows{}, fmt.Errorf("read the ledger's rows: %w", err)
	}
	defer conn.Close(ctx)
	all.accounts, err = readBy(ctx, conn, `SELECT name, balance, reserved, held, charged, running FROM account`,
		func(a accountRow) string { return a.Name })
	if err != nil {
		return rows{}, err
	}
	all.reservations, err = readBy(ctx, conn, `SELECT uid, account, payer, class, state, gpu_seconds, rate_version, rate, amount, charged FROM reservation`,
		func(r reservationRow) string { return r.UID })
	if err != nil {
		return rows{}, err
	}
	all.allocations, err = readBy(ctx, conn, `SELECT pod_uid, reservation, state, rate_version, rate, gpus, started_at, ended_at, charged, refunded FROM allocation`,
		func(a allocationRow) string { return a.Pod })
	if err != nil {
		return rows{}, err
	}
	all.lots, err = readBy(ctx, conn, `SELECT key, account, amount, free, held, expired, expires_at FROM lot`,
		func(l lotRow) string { return l.Key })
	if err != nil {
		return rows{}, err
	}
	found, err := conn.Query(ctx, `SELECT id, kind, event_key, debit, credit, COALESCE(allocation, ''), amount, occurred_at, recorded_at FROM entry ORDER BY id`)
	if err != nil {
		return rows{}, fmt.Errorf("read the ledger's entries: %w", err)
	}
	all.entries, err = pgx.CollectRows(found, pgx.RowToStructByPos[entryRow])
	return all, err
}

func readBy[T any](ctx context.Context, conn *pgx.Conn, statement string, key func(T) string) (map[string]T, error) {
	found, err := conn.Query(ctx, statement)
	if err != nil {
		return nil, fmt.Errorf("read the ledger's rows: %w", err)
	}
	list, err := pgx.CollectRows(found, pgx.RowToStructByPos[T])
	if err != nil {
		return nil, fmt.Errorf("read the ledger's rows: %w", err)
	}
	byKey := make(map[string]T, len(list))
	for _, row := range list {
		byKey[key(row)] = row
	}
	return byKey, nil
}
