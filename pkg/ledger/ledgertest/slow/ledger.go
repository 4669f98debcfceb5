package slow

import (
	"maps"
	"slices"
	"time"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// Ledger answers commands. Create it with New.
type Ledger struct {
	books
	now     time.Time
	leaders map[string]int64
	nodes   map[string]int64
	// known is how many entries and discrepancies there were when the batch began: younger ones have no number yet that
	// an adjustment could name.
	knownEntries, knownDiscrepancies int
	// Partial: a batch touches the accounts that its commands name, and those above them, as with a database. Otherwise it
	// touches all.
	Partial bool
}

// books are the lists. Nothing in them is ever changed in place but single fields of the last element of a slice copy, so
// that a copy of the slices is a copy of everything.
type books struct {
	accounts      []account
	rates         []ledger.RateVersion
	entries       []entry
	lots          []lot
	holds         []hold
	attempts      []attempt
	pieces        []ledger.Interval
	sightings     []ledger.DeviceHold
	discrepancies []ledger.Discrepancy
	answers       []answer
	// policies are the names of accounts, once for each policy that one of that name had.
	policies []string
}

type account struct {
	name, parent string
	policy       ledger.Policy
	version      int64
	frozen       string
	// refilled is the beginning of the last refill period that is done with, spentSince that of the spending period that the
	// account was touched in last.
	refilled, spentSince time.Time
}

// entry is a movement. fromHold is the part of its draws that a hold had taken.
type entry struct {
	ledger.Entry
	fromHold []ledger.Take
}

// lot is a grant that expires.
type lot struct {
	key, account string
	amount       ledger.Microcredits
	expires      time.Time
}

// hold is a reservation with everything it ever took from lots. Its Charged and Takes are left empty.
type hold struct {
	ledger.Reservation
	taken []ledger.Take
}

// attempt is an allocation. Its Charged and Refunded are left empty.
type attempt struct{ ledger.Allocation }

type answer struct {
	key, content string
	verdict      ledger.Verdict
}

// New is an empty ledger in which these epochs are current.
func New(leaders, nodes map[string]int64) *Ledger {
	return &Ledger{leaders: maps.Clone(leaders), nodes: maps.Clone(nodes)}
}

// copy of the lists; their elements are values.
func (b books) copy() books {
	return books{
		accounts: slices.Clone(b.accounts), rates: slices.Clone(b.rates), entries: slices.Clone(b.entries), lots: slices.Clone(b.lots),
		holds: slices.Clone(b.holds), attempts: slices.Clone(b.attempts), pieces: slices.Clone(b.pieces),
		sightings: slices.Clone(b.sightings), discrepancies: slices.Clone(b.discrepancies), answers: slices.Clone(b.answers),
		policies: slices.Clone(b.policies),
	}
}

// Decide answers a batch. Verdicts carry no rows, and refusals no words.
func (l *Ledger) Decide(now time.Time, commands ...ledger.Command) []ledger.Verdict {
	l.now = microsecond(now)
	l.knownEntries, l.knownDiscrepancies = len(l.entries), len(l.discrepancies)
	for _, name := range l.touched(commands) {
		l.postDue(name)
	}
	verdicts := make([]ledger.Verdict, len(commands))
	for i, command := range commands {
		verdicts[i] = l.decide(command)
	}
	return verdicts
}

func (l *Ledger) decide(command ledger.Command) ledger.Verdict {
	if refusal := ledger.Check(command); refusal != nil {
		return refused(refusal.Code)
	}
	switch c := command.(type) {
	case ledger.Allocate:
		if c.LeaderEpoch < 1 || c.LeaderEpoch != l.leaders[c.Leader] {
			return refused(ledger.StaleEpoch)
		}
	case ledger.AllocateGang:
		for _, member := range c.Members {
			if member.LeaderEpoch < 1 || member.LeaderEpoch != l.leaders[member.Leader] {
				return refused(ledger.StaleEpoch)
			}
		}
	case ledger.RecordInterval:
		if c.OwnerEpoch < 1 || c.OwnerEpoch != l.nodes[c.Node] {
			return refused(ledger.StaleEpoch)
		}
	case ledger.PostDue:
		if l.account(c.Account) == nil {
			return refused(ledger.UnknownAccount)
		}
		l.postDue(c.Account)
		return ledger.Verdict{}
	}
	said := contentOf(command)
	for _, earlier := range l.answers {
		if earlier.key != command.CommandKey() {
			continue
		}
		if earlier.content == said {
			verdict := earlier.verdict
			verdict.Replayed = true
			return verdict
		}
		if c, ok := command.(ledger.RecordInterval); ok {
			l.disagree("key-reused:"+c.Key, ledger.IntervalConflict, c.PodUID)
		}
		return refused(ledger.KeyReused)
	}
	verdict := l.carryOut(command)
	if verdict.Refusal == nil || !forgotten[verdict.Refusal.Code] {
		remembered := verdict
		remembered.Replayed = false
		l.answers = append(l.answers, answer{command.CommandKey(), said, remembered})
	}
	return verdict
}

// forgotten are the refusals that say "not yet" or "not you", or that the command makes no sense.
var forgotten = map[ledger.RefusalCode]bool{
	ledger.UnknownAccount: true, ledger.UnknownClass: true, ledger.UnknownReservation: true, ledger.UnknownPod: true,
	ledger.UnknownEntry: true, ledger.UnknownDiscrepancy: true, ledger.NoReservation: true, ledger.AccountInUse: true,
	ledger.ReservationInUse: true, ledger.AccountFrozen: true, ledger.RunningLimited: true, ledger.StillRunning: true,
	ledger.InTheFuture: true, ledger.Invalid: true,
}

func (l *Ledger) carryOut(command ledger.Command) ledger.Verdict {
	switch c := command.(type) {
	case ledger.SetAccount:
		return l.setAccount(c)
	case ledger.RemoveAccount:
		return l.removeAccount(c)
	case ledger.SetRate:
		return l.setRate(c)
	case ledger.PostGrant:
		return l.postGrant(c)
	case ledger.Adjust:
		return l.adjust(c)
	case ledger.Transfer:
		return l.transfer(c)
	case ledger.FreezeAccount:
		return l.freeze(c.Account, c.Reason)
	case ledger.UnfreezeAccount:
		return l.unfreeze(c.Account)
	case ledger.PlaceHold:
		return l.placeHold(c)
	case ledger.RenewHold:
		return l.renewHold(c)
	case ledger.EnsureHold:
		return l.ensureHold(c)
	case ledger.PauseHold:
		return l.pauseHold(c)
	case ledger.CloseReservation:
		return l.closeReservation(c)
	case ledger.Allocate:
		return l.allocate(c)
	case ledger.AllocateGang:
		return l.allocateGang(c)
	case ledger.ConfirmBound:
		return l.confirmBound(c)
	case ledger.ReleaseAllocation:
		return l.releaseAllocation(c)
	case ledger.RecordStart:
		return l.recordStart(c)
	case ledger.RecordInterval:
		return l.recordInterval(c)
	case ledger.EndAllocation:
		return l.endAllocation(c)
	case ledger.Refund:
		return l.refund(c)
	case ledger.MarkSuspect:
		return l.markSuspect(c)
	case ledger.ClearSuspect:
		return l.clearSuspect(c)
	}
	panic("slow: unknown command")
}

func refused(code ledger.RefusalCode) ledger.Verdict {
	return ledger.Verdict{Refusal: &ledger.Refusal{Code: code}}
}

func limited(code ledger.RefusalCode, account string, needed, available ledger.Microcredits) *ledger.Verdict {
	return &ledger.Verdict{Refusal: &ledger.Refusal{Code: code, Account: account, Needed: needed, Available: available}}
}

// try makes a change and reports whether every sum of every account stays within the ledger's range; if not, nothing happened.
func (l *Ledger) try(change func()) bool {
	before := l.books.copy()
	change()
	for _, a := range l.accounts {
		if !l.inRange(a.name) {
			l.books = before
			return false
		}
	}
	return true
}

func microsecond(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return time.UnixMicro(t.UnixMicro()).UTC()
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
