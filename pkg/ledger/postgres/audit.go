package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// auditQueries each return what is broken, in sql/audit.sql.
var auditQueries = []string{
	"AuditReserved", "AuditProjections", "AuditSpending", "AuditPolicies", "AuditLotOrigins", "AuditOverlaps", "AuditSharedDevices",
	"AuditCharges", "AuditAllocationSums", "AuditCompacted", "AuditCompactedCharges", "AuditReservations", "AuditEpochs", "AuditGuards", "AuditUnbilled", "AuditZeroSum",
	"AuditEntries",
}

// Audit checks the invariants from the rows themselves, all in one snapshot, and returns what is broken; a sound
// ledger gives none. It reads every entry, and nobody waits for it. That entries are the ones that were written is for
// VerifyChains to say.
func (s *Store) Audit(ctx context.Context) ([]ledger.Violation, error) {
	var found []ledger.Violation
	err := s.snapshot(ctx, func(tx pgx.Tx) (err error) {
		found, err = audit(ctx, tx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("audit the ledger: %w", meaning(err))
	}
	return found, nil
}

func audit(ctx context.Context, tx pgx.Tx) ([]ledger.Violation, error) {
	p, err := project(ctx, tx, "AccountAll")
	if err != nil {
		return nil, err
	}
	found := p.violations()
	lots, err := auditLots(ctx, tx)
	if err != nil {
		return nil, err
	}
	found = append(found, lots...)
	for _, name := range auditQueries {
		rows, err := tx.Query(ctx, query(name))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		violations, err := pgx.CollectRows(rows, scanViolation)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		found = append(found, violations...)
	}
	return found, nil
}

// Size counts what an Audit would go over now. Entries, reservations and allocations are never deleted, so that a later
// Audit covers all that were counted.
func (s *Store) Size(ctx context.Context) (ledger.Size, error) {
	size, _, err := readOne(ctx, s, "AuditSize", pgx.RowToStructByPos[ledger.Size])
	return size, err
}

// Rebuild computes the projection anew from entries and open reservations: accounts, the lots' amounts and the spenders' days.
// It returns how many rows it had to change; a sound ledger gives 0. Everything else waits meanwhile. A lot that is missing
// altogether cannot be made again, since no entry says when it expires; the error names it.
func (s *Store) Rebuild(ctx context.Context) (changed int, err error) {
	err = pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		changed, err = s.rebuild(ctx, tx)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("rebuild the ledger's projection: %w", meaning(err))
	}
	return changed, nil
}

func (s *Store) rebuild(ctx context.Context, tx pgx.Tx) (changed int, err error) {
	var revision int64
	if err := tx.QueryRow(ctx, query("TransactionNumber")).Scan(&revision); err != nil {
		return 0, err
	}
	p, err := project(ctx, tx, "AccountLockAll")
	if err != nil {
		return 0, err
	}
	if len(p.unreadable) > 0 {
		return 0, fmt.Errorf("%s", p.unreadable[0])
	}
	lots, err := rebuiltLots(ctx, tx)
	if err != nil {
		return 0, err
	}
	days, err := tx.Exec(ctx, query("SpendingRebuild"))
	if err != nil {
		return 0, err
	}
	var updates ledger.Changes[ledger.Account]
	for i := range p.stored {
		if figures(p.stored[i]) != figures(p.folded[i]) {
			row := p.folded[i]
			row.Revision = max(p.stored[i].Revision+1, revision)
			updates.Updated = append(updates.Updated, row)
		}
	}
	w := &writes{now: s.clock.Now()}
	w.accounts(ledger.Outcome{Accounts: updates})
	w.lots(ledger.Changes[ledger.Lot]{Updated: lots})
	return len(updates.Updated) + len(lots) + int(days.RowsAffected()), tx.SendBatch(ctx, &w.batch).Close()
}

// projections are the accounts as they are stored, and as others rows say they should be.
type projections struct {
	stored []ledger.Account
	// folded are computed from entries and open reservations alone, summed from what is stored of each account and day alone.
	folded, summed []ledger.Account
	// unreadable are accounts whose policy is damaged; they count as if they had none.
	unreadable []ledger.Violation
}

func project(ctx context.Context, tx pgx.Tx, accountsQuery string) (p projections, err error) {
	rows, err := tx.Query(ctx, query(accountsQuery))
	if err != nil {
		return p, err
	}
	if p.stored, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (ledger.Account, error) {
		account, err := scanAccount(row)
		if err == nil || account.Name == "" {
			return account, err
		}
		p.unreadable = append(p.unreadable, ledger.Violation{
			Invariant: "I2", Subject: "account " + account.Name, Accounts: []string{account.Name}, Mark: "unreadable", Detail: err.Error(),
		})
		return account, nil
	}); err != nil {
		return p, err
	}
	summed, err := collectSpending(ctx, tx, "SpendingAll")
	if err != nil {
		return p, err
	}
	folded, err := collectSpending(ctx, tx, "SpendingFold")
	if err != nil {
		return p, err
	}
	p.summed = append([]ledger.Account(nil), p.stored...)
	ledger.ProjectSubtrees(byName(p.summed), summed)
	p.folded = append([]ledger.Account(nil), p.stored...)
	accounts := byName(p.folded)
	if err := foldOwn(ctx, tx, accounts); err != nil {
		return p, err
	}
	ledger.ProjectSubtrees(accounts, folded)
	return p, nil
}

func byName(rows []ledger.Account) map[string]*ledger.Account {
	accounts := make(map[string]*ledger.Account, len(rows))
	for i := range rows {
		accounts[rows[i].Name] = &rows[i]
	}
	return accounts
}

func collectSpending(ctx context.Context, tx pgx.Tx, name string) ([]ledger.DailySpending, error) {
	rows, err := tx.Query(ctx, query(name))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanSpending)
}

// foldOwn puts into the accounts what entries and open reservations add up to.
func foldOwn(ctx context.Context, tx pgx.Tx, accounts map[string]*ledger.Account) error {
	rows, err := tx.Query(ctx, query("AccountFold"))
	if err != nil {
		return err
	}
	var own ledger.Account
	var lastEntryAt *time.Time
	_, err = pgx.ForEachRow(rows, []any{&own.Name, &own.Balance, &own.Reserved, &own.Held, &own.Charged, &own.Running, &lastEntryAt}, func() error {
		if a := accounts[own.Name]; a != nil {
			a.Balance, a.Reserved, a.Held, a.Charged, a.Running = own.Balance, own.Reserved, own.Held, own.Charged, own.Running
			a.LastEntryAt = fromNullable(lastEntryAt)
		}
		return nil
	})
	return err
}

// projection is an account's figures that are folds of other rows (I2).
type projection struct {
	Balance, Reserved, Held, Charged                                             ledger.Microcredits
	Running                                                                      int64
	LastEntryAt                                                                  time.Time
	SubtreeBalance, SubtreeReserved, SubtreeHeld, SubtreeOverspent, SubtreeSpent ledger.Microcredits
	SubtreeRunning                                                               int64
}

func figures(a ledger.Account) projection {
	return projection{
		a.Balance, a.Reserved, a.Held, a.Charged, a.Running, a.LastEntryAt,
		a.SubtreeBalance, a.SubtreeReserved, a.SubtreeHeld, a.SubtreeOverspent, a.SubtreeSpent, a.SubtreeRunning,
	}
}

// figure is one number of an account, by the name that people read.
type figure struct {
	name  string
	value func(ledger.Account) int64
	// own is what the account itself adds to a subtree's sum; nil where that depends on time.
	own func(ledger.Account) int64
}

var ownFigures = []figure{
	{name: "balance", value: func(a ledger.Account) int64 { return int64(a.Balance) }},
	{name: "reserved", value: func(a ledger.Account) int64 { return int64(a.Reserved) }},
	{name: "held", value: func(a ledger.Account) int64 { return int64(a.Held) }},
	{name: "charged", value: func(a ledger.Account) int64 { return int64(a.Charged) }},
	{name: "running", value: func(a ledger.Account) int64 { return a.Running }},
}

var subtreeFigures = []figure{
	{"balance of its subtree", func(a ledger.Account) int64 { return int64(a.SubtreeBalance) }, func(a ledger.Account) int64 { return int64(a.Balance) }},
	{"reserved by its subtree", func(a ledger.Account) int64 { return int64(a.SubtreeReserved) }, func(a ledger.Account) int64 { return int64(a.Reserved) }},
	{"held by its subtree", func(a ledger.Account) int64 { return int64(a.SubtreeHeld) }, func(a ledger.Account) int64 { return int64(a.Held) }},
	{"running in its subtree", func(a ledger.Account) int64 { return a.SubtreeRunning }, func(a ledger.Account) int64 { return a.Running }},
	{"overspent by its subtree", func(a ledger.Account) int64 { return int64(a.SubtreeOverspent) }, func(a ledger.Account) int64 { return int64(a.Overspent()) }},
	{"spent by its subtree", func(a ledger.Account) int64 { return int64(a.SubtreeSpent) }, nil},
}

// violations names the accounts whose figures are wrong, and not those above them, whose sums only repeat it. A subtree's sum is
// wrong where it is none of these: the fold of the entries below, the sum of what the accounts below say of themselves, the sum
// of what the account itself and its children say. If anything at all is wrong, the lowest place where it is is among them.
func (p projections) violations() []ledger.Violation {
	found := p.unreadable
	children := make(map[string][]ledger.Account)
	for _, a := range p.stored {
		children[a.Parent] = append(children[a.Parent], a)
	}
	for i, got := range p.stored {
		var details, marks []string
		wrong := func(f figure, want int64) {
			details = append(details, fmt.Sprintf("%s is %d, should be %d", f.name, f.value(got), want))
			marks = append(marks, fmt.Sprintf("%s%+d", f.name, f.value(got)-want))
		}
		for _, f := range ownFigures {
			if want := f.value(p.folded[i]); f.value(got) != want {
				wrong(f, want)
			}
		}
		for _, f := range subtreeFigures {
			value, want := f.value(got), f.value(p.folded[i])
			if value == want || value == f.value(p.summed[i]) || f.own != nil && value == locally(f, got, children[got.Name]) {
				continue
			}
			wrong(f, want)
		}
		if want := p.folded[i].LastEntryAt; !got.LastEntryAt.Equal(want) {
			details = append(details, fmt.Sprintf("its last entry was recorded %s, it says %s", want.Format(time.RFC3339Nano), got.LastEntryAt.Format(time.RFC3339Nano)))
			marks = append(marks, "last entry")
		}
		if len(details) > 0 {
			found = append(found, ledger.Violation{
				Invariant: "I2", Subject: "account " + got.Name, Accounts: []string{got.Name}, Mark: strings.Join(marks, " "),
				Detail: strings.Join(details, "; ") + ", by its entries and open reservations",
			})
		}
	}
	return found
}

// locally is what an account says of itself and its children of their subtrees.
func locally(f figure, account ledger.Account, children []ledger.Account) int64 {
	sum := f.own(account)
	for _, child := range children {
		sum += f.value(child)
	}
	return sum
}

func scanSpending(row pgx.CollectableRow) (s ledger.DailySpending, err error) {
	err = row.Scan(&s.Account, &s.Day, &s.Amount)
	s.Day = s.Day.UTC()
	return s, err
}

func scanViolation(row pgx.CollectableRow) (v ledger.Violation, err error) {
	err = row.Scan(&v.Invariant, &v.Subject, &v.Accounts, &v.Mark, &v.Detail)
	return v, err
}
