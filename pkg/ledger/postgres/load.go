package postgres

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// footprint is what a batch of commands touches, as far as the commands say.
type footprint struct {
	keys         set
	accounts     set
	reservations set
	pods         set
	// related are the reservations, and placed the pods, whose accounts have to be locked with those that are named. Those of new
	// holds and of new allocations are not: usually there are none yet, or they are of the accounts that the command names.
	// Where they are not, checkLocked finds that out, and the batch is repeated with all of them (thorough).
	related, placed set
	thorough        bool
	// trusting: new holds are taken to be new, so that neither their keys nor their workloads are looked for. See Store.trusts.
	trusting bool
	// claimed are the reservations whose open allocations matter (Allocate, EnsureHold, PauseHold, CloseReservation).
	claimed set
	classes set
	leaders set
	nodes   set
	// removed are the accounts whose uses matter.
	removed set
	// settings are the accounts, with parent and policy, whose subtree's spending matters if these change.
	settings []ledger.SetAccount
	// corrected are the entries and closed the discrepancies that adjustments name.
	corrected map[int64]bool
	closed    set
	windows   windows[string] // metered time that matters, by pod UID
	devices   windows[deviceKey]
}

type set map[string]struct{}

func (s *set) add(text string) {
	if *s == nil {
		*s = make(set)
	}
	if text != "" {
		(*s)[text] = struct{}{}
	}
}

// list is the elements in order: a reproducible parameter.
func (s set) list() []string { return slices.Sorted(maps.Keys(s)) }

// window is [start, end) of metered time.
type window struct{ start, end time.Time }

// windows are one for each key, which contains all of its times.
type windows[K comparable] map[K]window

func (all windows[K]) widen(key K, w window) {
	if known, ok := all[key]; ok {
		if known.start.Before(w.start) {
			w.start = known.start
		}
		if known.end.After(w.end) {
			w.end = known.end
		}
	}
	all[key] = w
}

type deviceKey struct{ gpu, pod string }

// everything is a window that contains any time that ledger.Check lets pass.
var everything = window{time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2201, 1, 1, 0, 0, 0, 0, time.UTC)}

func footprintOf(commands []ledger.Prepared, thorough, trusting bool) footprint {
	f := footprint{windows: make(windows[string]), devices: make(windows[deviceKey]), thorough: thorough, trusting: trusting}
	for _, one := range commands {
		// What is malformed is refused whatever the ledger holds; its texts must not reach the database.
		if one.Malformed != nil {
			continue
		}
		if hold, ok := one.Command.(ledger.PlaceHold); ok && trusting {
			f.accounts.add(hold.Account)
			f.classes.add(hold.Class)
			continue
		}
		f.keys.add(one.Command.CommandKey())
		f.include(one.Command)
	}
	return f
}

// existing adds a reservation that a command takes to be there.
func (f *footprint) existing(uid string) {
	f.reservations.add(uid)
	f.related.add(uid)
}

// pod adds one whose allocation a command takes to be there.
func (f *footprint) pod(uid string) {
	f.pods.add(uid)
	f.placed.add(uid)
}

func (f *footprint) include(command ledger.Command) {
	switch c := command.(type) {
	case ledger.SetAccount:
		f.accounts.add(c.Account)
		f.accounts.add(c.Parent)
		f.settings = append(f.settings, c)
	case ledger.RemoveAccount:
		f.accounts.add(c.Account)
		f.removed.add(c.Account)
	case ledger.SetRate:
		f.classes.add(c.Class)
	case ledger.PostGrant:
		f.accounts.add(c.Account)
	case ledger.Adjust:
		f.accounts.add(c.Account)
		f.closed.add(c.Discrepancy)
		if c.Corrects != 0 {
			if f.corrected == nil {
				f.corrected = make(map[int64]bool)
			}
			f.corrected[c.Corrects] = true
		}
	case ledger.Transfer:
		f.accounts.add(c.From)
		f.accounts.add(c.To)
	case ledger.FreezeAccount:
		f.accounts.add(c.Account)
	case ledger.UnfreezeAccount:
		f.accounts.add(c.Account)
	case ledger.PostDue:
		f.accounts.add(c.Account)
	case ledger.PlaceHold:
		f.hold(c)
	case ledger.RenewHold:
		f.existing(c.UID)
	case ledger.EnsureHold:
		f.hold(c.Hold)
		f.existing(c.Hold.UID)
		f.claimed.add(c.Hold.UID)
	case ledger.PauseHold:
		f.existing(c.UID)
		f.claimed.add(c.UID)
	case ledger.CloseReservation:
		f.existing(c.UID)
		f.claimed.add(c.UID)
	case ledger.Allocate:
		f.pods.add(c.PodUID)
		f.accounts.add(c.Account)
		f.reservations.add(c.Reservation)
		if f.thorough {
			f.placed.add(c.PodUID)
			f.related.add(c.Reservation)
		}
		f.claimed.add(c.Reservation)
		f.leaders.add(c.Leader)
		if c.Hold != nil {
			f.hold(*c.Hold)
		}
	case ledger.AllocateGang:
		for _, member := range c.Members {
			f.include(member)
		}
	case ledger.ConfirmBound:
		f.pod(c.PodUID)
	case ledger.ReleaseAllocation:
		f.pod(c.PodUID)
	case ledger.RecordStart:
		f.pod(c.PodUID)
	case ledger.RecordInterval:
		f.interval(c)
	case ledger.EndAllocation:
		f.pod(c.PodUID)
		f.windows[c.PodUID] = everything
	case ledger.Refund:
		f.pod(c.PodUID)
	case ledger.MarkSuspect:
		f.pod(c.PodUID)
	case ledger.ClearSuspect:
		f.pod(c.PodUID)
	default:
		panic(fmt.Sprintf("postgres: unknown command %T", command))
	}
}

func (f *footprint) hold(c ledger.PlaceHold) {
	f.accounts.add(c.Account)
	f.reservations.add(c.UID)
	if f.thorough {
		f.related.add(c.UID)
	}
	f.classes.add(c.Class)
}

func (f *footprint) interval(c ledger.RecordInterval) {
	f.pod(c.PodUID)
	f.nodes.add(c.Node)
	w := window{ledger.Instant(c.Start), ledger.Instant(c.End)}
	for _, gpu := range c.GPUUUIDs {
		f.devices.widen(deviceKey{gpu, c.PodUID}, w)
	}
	f.windows.widen(c.PodUID, w)
}

// loading says how a state is read.
type loading struct {
	begin, settings, number, accounts, namedAccounts, leaders, nodes string
}

var (
	// lockingLoad reads what the commands touch and keeps it as it is until the transaction ends. Read committed: each
	// statement sees what was committed before it began, so what is read after the locks is current.
	lockingLoad = loading{
		begin: "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE", settings: query("BatchSettings"),
		number: query("TransactionNumber"), accounts: query("AccountLock"), namedAccounts: query("AccountLockNamed"),
		leaders: query("LeadershipShare"), nodes: query("NodeAgentLock"),
	}
	// quotingLoad reads the same from one snapshot and locks nothing.
	quotingLoad = loading{
		begin: "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", settings: query("ReadSettings"),
		accounts: query("AccountLoad"), namedAccounts: query("AccountLoad"), leaders: query("LeadershipLoad"), nodes: query("NodeAgentLoad"),
	}
)

// load begins a transaction and reads what the commands touch, in one round trip.
func (l loading) load(ctx context.Context, conn *pgx.Conn, now time.Time, f footprint, memory *known) (*ledger.State, error) {
	state := &ledger.State{}
	batch := &pgx.Batch{}
	batch.Queue(l.begin)
	batch.Queue(l.settings)
	if l.number != "" {
		batch.Queue(l.number).QueryRow(func(row pgx.Row) error { return row.Scan(&state.Revision) })
	}

	// Locks, in the order in which every batch takes them: accounts, leaderships, nodes.
	locks := memory.locks(&f)
	l.queueAccounts(batch, locks, state)
	queueEpochs(batch, l.leaders, f.leaders, &state.LeaderEpochs)
	queueEpochs(batch, l.nodes, f.nodes, &state.NodeEpochs)

	if len(f.keys) > 0 {
		each(batch.Queue(query("CommandLoad"), f.keys.list()), scanRemembered, state.LoadRemembered)
	}
	if len(f.classes) > 0 {
		each(batch.Queue(query("RateLoad"), f.classes.list()), scanRate, func(r ledger.RateVersion) { state.Rates.Load(r.Class, r) })
	}
	for _, reading := range []struct {
		statement string
		keys      []string
	}{{"ReservationLoad", f.reservations.list()}, {"ReservationLoadOfPods", locks.pods}} {
		if len(reading.keys) > 0 {
			each(batch.Queue(query(reading.statement), reading.keys), scanReservation,
				func(r ledger.Reservation) { state.Reservations.Load(r.UID, r) })
		}
	}
	for _, reading := range []struct {
		statement string
		keys      set
	}{{"AllocationLoad", f.pods}, {"AllocationLoadOpen", f.claimed}} {
		if len(reading.keys) > 0 {
			each(batch.Queue(query(reading.statement), reading.keys.list()), scanAllocation, state.LoadAllocation)
		}
	}
	f.queueMetering(batch, state)
	f.queueCorrections(batch, state)
	if len(f.settings) > 0 {
		f.queueSpending(batch, now, state)
		f.queueLastPolicies(batch, state)
	}
	if len(f.removed) > 0 {
		queueUses(batch, f.removed, state)
	}
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		return nil, err
	}
	// Usually the transaction's own number. A transaction that waited for the locks of a younger one comes out above it.
	state.Accounts.All(func(_ string, a *ledger.Account) { state.Revision = max(state.Revision, a.Revision+1) })
	return state, checkLocked(state)
}

// queueAccounts reads, and locks, the accounts with their ancestors, and then their lots.
func (l loading) queueAccounts(batch *pgx.Batch, k locks, state *ledger.State) {
	load := func(a ledger.Account) { state.Accounts.Load(a.Name, a) }
	switch {
	case len(k.accounts)+len(k.reservations)+len(k.pods) == 0:
	case k.complete:
		each(batch.Queue(l.namedAccounts, k.accounts), scanAccount, load)
		each(batch.Queue(query("LotLoadNamed"), k.accounts), scanLot, state.LoadLot)
	default:
		each(batch.Queue(l.accounts, k.accounts, k.reservations, k.pods), scanAccount, load)
		each(batch.Queue(query("LotLoad"), k.accounts, k.reservations, k.pods), scanLot, state.LoadLot)
	}
}

func (f *footprint) queueMetering(batch *pgx.Batch, state *ledger.State) {
	if len(f.windows) > 0 {
		pods := slices.Sorted(maps.Keys(f.windows))
		each(batch.Queue(query("IntervalLoad"), pods,
			column(pods, func(pod *string) time.Time { return f.windows[*pod].start }),
			column(pods, func(pod *string) time.Time { return f.windows[*pod].end }),
		), scanInterval, state.LoadInterval)
		batch.Queue(query("CompactedLoad"), pods).Query(func(rows pgx.Rows) error {
			compacted, err := pgx.CollectRows(rows, scanCompacted)
			for i := 0; err == nil && i < len(compacted); i++ {
				err = state.LoadCompacted(compacted[i])
			}
			return err
		})
	}
	if len(f.devices) > 0 {
		held := slices.Collect(maps.Keys(f.devices))
		each(batch.Queue(query("DeviceLoad"),
			column(held, func(d *deviceKey) string { return d.gpu }),
			column(held, func(d *deviceKey) string { return d.pod }),
			column(held, func(d *deviceKey) time.Time { return f.devices[*d].start }),
			column(held, func(d *deviceKey) time.Time { return f.devices[*d].end }),
		), scanDevice, state.LoadDevice)
	}
}

func (f *footprint) queueCorrections(batch *pgx.Batch, state *ledger.State) {
	if len(f.corrected) > 0 {
		state.Entries = make(map[int64]ledger.Entry)
		each(batch.Queue(query("EntryLoad"), slices.Sorted(maps.Keys(f.corrected))), scanEntry, func(e ledger.Entry) { state.Entries[e.ID] = e })
	}
	if len(f.closed) > 0 {
		state.Discrepancies = make(map[string]ledger.Discrepancy)
		each(batch.Queue(query("DiscrepancyLoad"), f.closed.list()), scanDiscrepancy, func(d ledger.Discrepancy) { state.Discrepancies[d.Key] = d })
	}
}

func (f *footprint) queueLastPolicies(batch *pgx.Batch, state *ledger.State) {
	state.LastPolicies = make(map[string]int64)
	names := column(f.settings, func(c *ledger.SetAccount) string { return c.Account })
	batch.Queue(query("PolicyLast"), names).Query(func(rows pgx.Rows) error {
		var account string
		var version int64
		_, err := pgx.ForEachRow(rows, []any{&account, &version}, func() error {
			state.LastPolicies[account] = version
			return nil
		})
		return err
	})
}

func (f *footprint) queueSpending(batch *pgx.Batch, now time.Time, state *ledger.State) {
	args := []any{
		column(f.settings, func(c *ledger.SetAccount) string { return c.Account }),
		column(f.settings, func(c *ledger.SetAccount) string { return c.Parent }),
		column(f.settings, func(c *ledger.SetAccount) string { return writePolicy(c.Policy) }),
	}
	earliest := now
	for _, period := range ledger.Periods { // a week may begin before the year does
		if start := period.Start(now); start.Before(earliest) {
			earliest = start
		}
	}
	batch.Queue(query("SpendingLoad"), append(args, earliest)...).Query(func(rows pgx.Rows) error {
		spending := make(map[string]ledger.SubtreeSpending)
		var account string
		var day *time.Time
		var amount ledger.Microcredits
		_, err := pgx.ForEachRow(rows, []any{&account, &day, &amount}, func() error {
			if spending[account] == nil {
				spending[account] = make(ledger.SubtreeSpending)
			}
			if day != nil { // it has spent something at all
				spending[account][day.UTC()] = amount
			}
			return nil
		})
		for name, days := range spending {
			state.LoadSpending(name, days)
		}
		return err
	})
}

func queueEpochs(batch *pgx.Batch, statement string, names set, epochs *map[string]int64) {
	if len(names) == 0 {
		return
	}
	*epochs = make(map[string]int64)
	batch.Queue(statement, names.list()).Query(func(rows pgx.Rows) error {
		var name string
		var epoch int64
		_, err := pgx.ForEachRow(rows, []any{&name, &epoch}, func() error {
			(*epochs)[name] = epoch
			return nil
		})
		return err
	})
}

func queueUses(batch *pgx.Batch, accounts set, state *ledger.State) {
	state.Uses = make(map[string]ledger.AccountUse)
	batch.Queue(query("AccountUses"), accounts.list()).Query(func(rows pgx.Rows) error {
		var name string
		var use ledger.AccountUse
		_, err := pgx.ForEachRow(rows, []any{&name, &use.Entries, &use.Reservations, &use.Children}, func() error {
			state.Uses[name] = use
			return nil
		})
		return err
	})
}

// each reads the rows of a queued statement.
func each[T any](queued *pgx.QueuedQuery, scan pgx.RowToFunc[T], visit func(T)) {
	queued.Query(func(rows pgx.Rows) error {
		for rows.Next() {
			one, err := scan(rows)
			if err != nil {
				rows.Close()
				return err
			}
			visit(one)
		}
		return rows.Err()
	})
}

// checkLocked makes sure that every account which the loaded rows refer to was locked with them.
func checkLocked(state *ledger.State) error {
	complete := true
	need := func(account string) {
		if account != "" && state.Accounts.Get(account) == nil {
			complete = false
		}
	}
	state.Accounts.All(func(_ string, a *ledger.Account) { need(a.Parent) })
	state.Reservations.All(func(_ string, r *ledger.Reservation) { need(r.Account); need(r.Payer) })
	state.Allocations.All(func(_ string, a *ledger.Allocation) {
		need(a.Account)
		if state.Reservations.Get(a.Reservation) == nil { // it appeared after the reservations were read
			complete = false
		}
	})
	if !complete {
		return errStaleLocks
	}
	return nil
}
