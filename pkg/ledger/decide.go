package ledger

import (
	"fmt"
	"slices"
	"time"
)

// Decide answers commands in order, each against the state that the ones before it left, and returns the changes to
// store with one commit. It does no I/O and reads no clock: now is when the commands are recorded. A refused command
// changes nothing but may leave a discrepancy, and never affects its neighbours.
//
// Which refusals are remembered (I6): those that are an answer to the command as given (InsufficientCredits, SpendingLimited,
// HoldExceeded, ReservationClosed, TermsDiffer, AlreadyBound, AllocationOver, Conflict, OutsidePod, OutOfRange,
// AlreadyExpired, AlreadyRefunded, AlreadyResolved). A caller that wants a fresh decision brings a fresh key. Not remembered are those that only say "not yet" or "not you"
// and are worth repeating with the same key (see Retryable), those of malformed commands, and KeyReused.
func Decide(state *State, now time.Time, commands []Command) Outcome {
	prepared := make([]Prepared, len(commands))
	for i, command := range commands {
		prepared[i] = Prepare(command)
	}
	return DecidePrepared(state, now, prepared)
}

// Prepared is a command with what can be told of it before there is a state: callers do that part of the work each for
// themselves, before they queue for the one decider.
type Prepared struct {
	Command Command
	// Malformed is what Check refuses; nil if nothing.
	Malformed *Refusal
	hash      [32]byte
}

// Prepare panics on a command that the ledger does not know (a nil, a pointer to one).
func Prepare(command Command) Prepared {
	return Prepared{Command: command, Malformed: Check(command), hash: ContentHash(command)}
}

// DecidePrepared is Decide for prepared commands.
func DecidePrepared(state *State, now time.Time, commands []Prepared) Outcome {
	d := decider{State: state, now: Instant(now)}
	d.postAllDue()
	verdicts := make([]Verdict, len(commands))
	for i, command := range commands {
		verdicts[i] = d.decide(command)
	}
	for _, name := range slices.Clone(d.Accounts.touched) {
		if d.Accounts.Get(name) != nil {
			d.setDue(name)
		}
	}
	return state.takeOutcome(verdicts)
}

// Retryable reports whether the same command under the same key may be accepted later: what it needs may yet appear
// (an account, a class, a reservation, an allocation), end (what is in use), come (the future), or be renewed (an
// epoch). Such refusals are not remembered.
func (c RefusalCode) Retryable() bool {
	switch c {
	case UnknownAccount, UnknownClass, UnknownReservation, UnknownPod, NoReservation,
		UnknownEntry, UnknownDiscrepancy, AccountInUse, ReservationInUse, AccountFrozen, RunningLimited, StillRunning,
		InTheFuture, StaleEpoch:
		return true
	}
	return false
}

func (c RefusalCode) remembered() bool {
	return !c.Retryable() && c != Invalid && c != KeyReused
}

type decider struct {
	*State
	now time.Time
}

func (d *decider) decide(p Prepared) Verdict {
	if p.Malformed != nil {
		return Verdict{Refusal: p.Malformed}
	}
	command := p.Command
	// Epochs come before memory: a replay under a stale epoch is refused too, since its sender would act on the
	// answer, and somebody else is in charge by now (I7).
	if refusal := d.checkEpoch(command); refusal != nil {
		return Verdict{Refusal: refusal}
	}
	if c, ok := command.(PostDue); ok {
		return d.postDue(c) // nothing to remember: what it does has keys of its own
	}
	key, hash := command.CommandKey(), p.hash
	if earlier, ok := d.remembered[key]; ok {
		return d.repeat(command, earlier, hash)
	}
	verdict := d.withRows(command, d.carryOut(command))
	if verdict.Refusal == nil || verdict.Refusal.Code.remembered() {
		d.LoadRemembered(Remembered{Key: key, ContentHash: hash, Verdict: verdict.answer(), Lasting: lasting(command), Forget: forgetRule(command, verdict)})
		d.recentRememberedOrder = append(d.recentRememberedOrder, key)
	}
	return verdict
}

func (d *decider) repeat(command Command, earlier Remembered, hash [32]byte) Verdict {
	if earlier.ContentHash == hash {
		verdict := d.withRows(command, earlier.Verdict)
		verdict.Replayed = true
		return verdict
	}
	// L13: the old result must not pass for an answer to the new content. Of measurements, both sides are kept.
	if c, ok := command.(RecordInterval); ok {
		d.addDiscrepancy(Discrepancy{
			Key: "key-reused:" + c.Key, Kind: IntervalConflict, PodUID: c.PodUID, Account: d.accountOf(c.PodUID),
			Ledger: "key " + c.Key + " was used for another report", Other: describeInterval(c),
		}, d.now)
	}
	return Verdict{Refusal: refuse(KeyReused, "key %q was already used for a command with other content", command.CommandKey())}
}

func (d *decider) carryOut(command Command) Verdict {
	switch c := command.(type) {
	case SetAccount:
		return d.setAccount(c)
	case RemoveAccount:
		return d.removeAccount(c)
	case SetRate:
		return d.setRate(c)
	case PostGrant:
		return d.postGrant(c)
	case Adjust:
		return d.adjust(c)
	case Transfer:
		return d.transfer(c)
	case FreezeAccount:
		return d.freezeAccount(c)
	case UnfreezeAccount:
		return d.unfreezeAccount(c)
	case PlaceHold:
		return d.placeHold(c)
	case RenewHold:
		return d.renewHold(c)
	case EnsureHold:
		return d.ensureHold(c)
	case PauseHold:
		return d.pauseHold(c)
	case CloseReservation:
		return d.closeReservation(c)
	case Allocate:
		return d.allocate(c)
	case AllocateGang:
		return d.allocateGang(c)
	case ConfirmBound:
		return d.confirmBound(c)
	case ReleaseAllocation:
		return d.releaseAllocation(c)
	case RecordStart:
		return d.recordStart(c)
	case RecordInterval:
		return d.recordInterval(c)
	case EndAllocation:
		return d.endAllocation(c)
	case Refund:
		return d.refund(c)
	case MarkSuspect:
		return d.markSuspect(c)
	case ClearSuspect:
		return d.clearSuspect(c)
	}
	panic(fmt.Sprintf("ledger: unknown command %T", command))
}

// withRows puts the rows that a command concerns beside its answer, as they stand now.
func (d *decider) withRows(command Command, v Verdict) Verdict {
	switch c := command.(type) {
	case SetAccount:
		v.Account = copyOf(d.Accounts.Get(c.Account))
	case PostGrant:
		v.Account = copyOf(d.Accounts.Get(c.Account))
	case Adjust:
		v.Account = copyOf(d.Accounts.Get(c.Account))
	case Transfer:
		v.Account = copyOf(d.Accounts.Get(c.From))
	case FreezeAccount:
		v.Account = copyOf(d.Accounts.Get(c.Account))
	case UnfreezeAccount:
		v.Account = copyOf(d.Accounts.Get(c.Account))
	case PlaceHold:
		v.Reservation, v.Account = copyOf(d.Reservations.Get(c.UID)), copyOf(d.Accounts.Get(c.Account))
	case RenewHold:
		v.Reservation = copyOf(d.Reservations.Get(c.UID))
	case EnsureHold:
		v.Reservation, v.Account = copyOf(d.Reservations.Get(c.Hold.UID)), copyOf(d.Accounts.Get(c.Hold.Account))
	case PauseHold:
		v.Reservation = copyOf(d.Reservations.Get(c.UID))
	case CloseReservation:
		v.Reservation = copyOf(d.Reservations.Get(c.UID))
		if v.Reservation != nil {
			v.Account = copyOf(d.Accounts.Get(v.Reservation.Account))
		}
	case Allocate:
		v.Allocation, v.Reservation = copyOf(d.Allocations.Get(c.PodUID)), copyOf(d.Reservations.Get(c.Reservation))
	case AllocateGang:
		v.Account = copyOf(d.Accounts.Get(c.Members[0].Account))
	case ConfirmBound:
		v.Allocation = copyOf(d.Allocations.Get(c.PodUID))
	case ReleaseAllocation:
		v.Allocation = copyOf(d.Allocations.Get(c.PodUID))
	case RecordStart:
		v.Allocation = copyOf(d.Allocations.Get(c.PodUID))
	case RecordInterval:
		v.Allocation = copyOf(d.Allocations.Get(c.PodUID))
	case EndAllocation:
		v.Allocation = copyOf(d.Allocations.Get(c.PodUID))
	case Refund:
		v.Allocation = copyOf(d.Allocations.Get(c.PodUID))
	case MarkSuspect:
		v.Allocation = copyOf(d.Allocations.Get(c.PodUID))
	case ClearSuspect:
		v.Allocation = copyOf(d.Allocations.Get(c.PodUID))
	}
	return v
}

// lasting is what programs before ForgetRule kept of it: they read nothing else.
func lasting(command Command) bool {
	switch command.(type) {
	case PostGrant, Adjust, Transfer, Refund, RenewHold, EnsureHold, PauseHold, FreezeAccount, UnfreezeAccount:
		return true
	}
	return false
}

// checkEpoch is I7. Epochs count from 1; 0 means that nobody ever took charge.
func (d *decider) checkEpoch(command Command) *Refusal {
	switch c := command.(type) {
	case Allocate:
		return d.checkLeader(c)
	case AllocateGang:
		return d.checkLeader(c.Members[0]) // Check made sure that all name the same
	case RecordInterval:
		if current := d.NodeEpochs[c.Node]; current == 0 || c.OwnerEpoch != current {
			return refuse(StaleEpoch, "the agent of node %s writes under epoch %d, the current one is %d",
				c.Node, c.OwnerEpoch, current)
		}
	}
	return nil
}

func (d *decider) checkLeader(c Allocate) *Refusal {
	if current := d.LeaderEpochs[c.Leader]; current == 0 || c.LeaderEpoch != current {
		return refuse(StaleEpoch, "leader %s writes under epoch %d, the current one is %d", c.Leader, c.LeaderEpoch, current)
	}
	return nil
}

// inTheFuture refuses a time beyond now and futureTolerance (L28).
func (d *decider) inTheFuture(what string, t time.Time) *Refusal {
	if t.After(d.now.Add(futureTolerance)) {
		return refuse(InTheFuture, "%s %s is in the future: the ledger's clock says %s", what, stamp(t), stamp(d.now))
	}
	return nil
}

// futureTolerance is how far ahead of the ledger's clock a reported time may be. Synchronised clocks differ by
// milliseconds, and pod times are whole seconds; half a minute forgives a node whose time daemon just started, and is
// below the shortest interval an agent is configured to send.
const futureTolerance = 30 * time.Second

func (d *decider) accountOf(podUID string) string {
	if a := d.Allocations.Get(podUID); a != nil {
		return a.Account
	}
	return ""
}

func copyOf[T any](row *T) *T {
	if row == nil {
		return nil
	}
	value := *row
	return &value
}
