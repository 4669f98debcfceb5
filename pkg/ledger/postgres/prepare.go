package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// hot are the statements of the commands that workloads wait for, and of metering. Parsing and planning them costs
// PostgreSQL more than executing them on a batch of one; figures in docs/designs/ledger-core.md.
var hot = []string{
	"BatchSettings", "TransactionNumber",
	"AccountLock", "AccountLockNamed", "LotLoad", "LotLoadNamed", "LeadershipShare", "NodeAgentLock", "CommandLoad", "RateLoad",
	"ReservationLoad", "ReservationLoadOfPods", "AllocationLoad", "AllocationLoadOpen", "IntervalLoad", "CompactedLoad", "DeviceLoad",
	"AccountUpdate", "ReservationHold", "ReservationInsert", "ReservationUpdate", "AllocationInsert", "AllocationUpdate",
	"IntervalInsert", "DeviceInsert", "DeviceUpdate", "EntryInsert", "SpendingAdd", "CommandInsert",
	"ReservationGet", "AccountGet",
}

// prepare prepares the hot statements on a new connection, whose batches then use them. It does so only where the connection
// leads straight to PostgreSQL: a pooler, such as PgBouncer in transaction mode, may hand each transaction to another server,
// which knows none of them. One gives itself away by announcing another process than the one that answers.
func prepare(ctx context.Context, conn *pgx.Conn, process uint32) error {
	if process != conn.PgConn().PID() {
		return nil
	}
	for _, name := range hot {
		statement := query(name)
		_, err := conn.Prepare(ctx, statement, statement)
		var server *pgconn.PgError
		if errors.As(err, &server) {
			return nil // what this role may not use: the statement itself will say so, to whoever needs it
		}
		if err != nil {
			return fmt.Errorf("prepare statement %s: %w", name, err)
		}
	}
	return nil
}

// leadsToPostgreSQL reports whether a connection leads straight to PostgreSQL.
func leadsToPostgreSQL(ctx context.Context, conn *pgx.Conn) (bool, error) {
	var process uint32
	if err := conn.QueryRow(ctx, query("Process"), pgx.QueryExecModeExec).Scan(&process); err != nil {
		return false, fmt.Errorf("ask which process of PostgreSQL answers: %w", err)
	}
	return process == conn.PgConn().PID(), nil
}
