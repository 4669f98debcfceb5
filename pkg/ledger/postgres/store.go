// Package postgres makes the ledger's decisions durable.
package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// Options adjusts a Store; the zero value is fine.
type Options struct {
	// Clock says when things are recorded. Default: the real one.
	Clock clock.PassiveClock
	// Logger receives what concerns no caller in particular, e.g. that PostgreSQL is away and is back.
	Logger logr.Logger
	// QueueLimit is how many commands may wait for a commit before ErrQueueFull. Default 65,536.
	QueueLimit int
}

// ErrQueueFull says that more commands wait than QueueLimit allows. Nothing was queued; back off and repeat.
var ErrQueueFull = errors.New("ledger queue is full; back off and repeat")

// ErrClosed says that the store was closed before the command was decided.
var ErrClosed = errors.New("ledger store is closed")

// UnavailableError says that no answer came while the caller waited. It is never a refusal. The command may have been
// executed all the same: repeating it with the same key is safe and tells.
type UnavailableError struct {
	Cause error
}

func (e *UnavailableError) Error() string { return "ledger unavailable: " + e.Cause.Error() }
func (e *UnavailableError) Unwrap() error { return e.Cause }

// Store is the ledger in one PostgreSQL database.
type Store struct{}

// Pending is a command that was queued by Start.
type Pending struct{}

var errUnbuilt = errors.New("not built yet")

func Migrate(ctx context.Context, databaseURL string) error { return errUnbuilt }
func Open(ctx context.Context, databaseURL string, opts Options) (*Store, error) {
	return nil, errUnbuilt
}
func (s *Store) Close() {}
func (s *Store) Submit(ctx context.Context, cmd ledger.Command) (ledger.Verdict, error) {
	return ledger.Verdict{}, errUnbuilt
}
func (s *Store) SubmitAll(ctx context.Context, cmds []ledger.Command) ([]ledger.Verdict, error) {
	return nil, errUnbuilt
}
func (s *Store) Start(cmd ledger.Command) *Pending { return &Pending{} }
func (p *Pending) Wait(ctx context.Context) (ledger.Verdict, error) {
	return ledger.Verdict{}, errUnbuilt
}
func (s *Store) Quote(ctx context.Context, cmd ledger.PlaceHold) (ledger.Verdict, error) {
	return ledger.Verdict{}, errUnbuilt
}
func (s *Store) Ping(ctx context.Context) error { return errUnbuilt }
func (s *Store) AcquireLeadership(ctx context.Context, name, holder string) (int64, error) {
	return 0, errUnbuilt
}
func (s *Store) RegisterNodeAgent(ctx context.Context, node, holder string) (int64, error) {
	return 0, errUnbuilt
}
func (s *Store) Account(ctx context.Context, name string) (ledger.Account, bool, error) {
	return ledger.Account{}, false, errUnbuilt
}
func (s *Store) AccountsSince(ctx context.Context, revision int64) ([]ledger.Account, error) {
	return nil, errUnbuilt
}
func (s *Store) Reservation(ctx context.Context, uid string) (ledger.Reservation, bool, error) {
	return ledger.Reservation{}, false, errUnbuilt
}
func (s *Store) OpenReservations(ctx context.Context) ([]ledger.Reservation, error) {
	return nil, errUnbuilt
}
func (s *Store) Allocation(ctx context.Context, podUID string) (ledger.Allocation, bool, error) {
	return ledger.Allocation{}, false, errUnbuilt
}
func (s *Store) OpenAllocations(ctx context.Context) ([]ledger.Allocation, error) {
	return nil, errUnbuilt
}
func (s *Store) ReservationAllocations(ctx context.Context, uid string) ([]ledger.Allocation, error) {
	return nil, errUnbuilt
}
func (s *Store) LastMetered(ctx context.Context, podUID string) (time.Time, bool, error) {
	return time.Time{}, false, errUnbuilt
}
func (s *Store) Statement(ctx context.Context, account string, from, to time.Time) (ledger.Statement, error) {
	return ledger.Statement{}, errUnbuilt
}
func (s *Store) Discrepancies(ctx context.Context) ([]ledger.Discrepancy, error) {
	return nil, errUnbuilt
}
func (s *Store) Audit(ctx context.Context) ([]ledger.Violation, error) { return nil, errUnbuilt }
func (s *Store) Rebuild(ctx context.Context) (changed int, err error)  { return 0, errUnbuilt }
