package ledger

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	// maxKeyBytes bounds a command key, maxNameBytes a name or UID (Kubernetes allows 253), maxTextBytes a reason.
	// All stay far below the 2,704 bytes that a PostgreSQL index entry can hold, but for reasons, which have no index.
	maxKeyBytes  = 512
	maxNameBytes = 253
	maxTextBytes = 4096
	// maxDevices bounds the GPUs of one report: more than any node has, MIG slices included.
	maxDevices = 1024
)

// Times outside these years are malformed: they would come from a broken clock or a zero timestamp, and inside them
// no price of a duration overflows unnoticed.
var (
	earliest = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	latest   = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
)

// isAccountName is the DNS-1123 subdomain rule that Kubernetes object names follow: labels of lower case letters, digits and
// inner hyphens, joined by dots.
func isAccountName(name string) bool {
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for i := range len(label) {
			if c := label[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
				return false
			}
		}
	}
	return true
}

// Check says what is malformed about a command by itself, whatever the ledger holds; nil if nothing is. Decide applies
// it, and whoever loads a State skips the commands that it refuses, so that their texts never reach a database.
// Such refusals are not remembered: the content decides alone.
func Check(command Command) *Refusal {
	var f fieldCheck
	f.text("key", command.CommandKey(), 1, maxKeyBytes)
	switch c := command.(type) {
	case SetAccount:
		f.account("account", c.Account)
		if c.Parent != "" {
			f.account("parent", c.Parent)
		}
		f.policy(c.Policy)
		if c.Parent == c.Account {
			f.fail(Invalid, "account %s cannot be its own parent", c.Account)
		}
	case RemoveAccount:
		f.account("account", c.Account)
	case SetRate:
		f.name("class", c.Class)
		f.number("rate in microcredits per GPU-second", int64(c.Rate), 1, int64(MaxRate))
	case PostGrant:
		f.account("account", c.Account)
		f.amount("amount", c.Amount, 1)
		f.text("reason", c.Reason, 0, maxTextBytes)
		f.text("actor", c.Actor, 0, maxTextBytes)
		if !c.ExpiresAt.IsZero() {
			f.time("expiry", c.ExpiresAt)
		}
	case Adjust:
		f.adjust(c)
	case Transfer:
		f.account("giving account", c.From)
		f.account("receiving account", c.To)
		f.amount("amount", c.Amount, 1)
		f.text("reason", c.Reason, 0, maxTextBytes)
		f.text("actor", c.Actor, 0, maxTextBytes)
		if c.From == c.To {
			f.fail(Invalid, "account %s cannot transfer to itself", c.From)
		}
	case FreezeAccount:
		f.account("account", c.Account)
		f.text("reason", c.Reason, 1, maxTextBytes)
	case UnfreezeAccount:
		f.account("account", c.Account)
		f.text("reason", c.Reason, 1, maxTextBytes)
		f.text("actor", c.Actor, 0, maxTextBytes)
	case PostDue:
		f.account("account", c.Account)
	case PlaceHold:
		f.hold(c)
	case RenewHold:
		f.name("workload UID", c.UID)
		f.number("GPU-seconds", c.GPUSeconds, 1, MaxGPUSeconds)
	case EnsureHold:
		f.hold(c.Hold)
		f.number("GPU-seconds seen", c.From, 0, MaxGPUSeconds)
	case PauseHold:
		f.name("workload UID", c.UID)
		f.number("GPU-seconds seen", c.From, 0, MaxGPUSeconds)
	case CloseReservation:
		f.name("workload UID", c.UID)
		f.text("reason", c.Reason, 0, maxTextBytes)
		if c.Outcome.Open() || !knownState(c.Outcome) {
			f.fail(Invalid, "outcome %q: want Settled, Released or Expired", string(c.Outcome))
		}
	case Allocate:
		f.allocate(c)
	case AllocateGang:
		f.gang(c)
	case ConfirmBound:
		f.name("pod UID", c.PodUID)
		f.name("node", c.Node)
	case ReleaseAllocation:
		f.name("pod UID", c.PodUID)
		f.text("reason", c.Reason, 0, maxTextBytes)
	case RecordStart:
		f.name("pod UID", c.PodUID)
		f.time("pod start", c.StartedAt)
	case RecordInterval:
		f.interval(c)
	case EndAllocation:
		f.name("pod UID", c.PodUID)
		f.text("reason", c.Reason, 0, maxTextBytes)
		if !c.StartedAt.IsZero() {
			f.time("pod start", c.StartedAt)
			f.time("pod end", c.EndedAt)
			if c.EndedAt.Before(c.StartedAt) {
				f.fail(Invalid, "pod end %s is before its start %s", stamp(c.EndedAt), stamp(c.StartedAt))
			}
		} else if !c.EndedAt.IsZero() {
			f.time("pod end", c.EndedAt)
		}
	case Refund:
		f.name("pod UID", c.PodUID)
		f.text("reason", c.Reason, 0, maxTextBytes)
		if c.Cause != RefundFailed && c.Cause != RefundPreempted && c.Cause != RefundDeviceFault {
			f.fail(Invalid, "refund cause %q: want Failed, Preempted or DeviceFault", string(c.Cause))
		}
		if !c.CheckpointedAt.IsZero() {
			f.time("checkpoint", c.CheckpointedAt)
		}
	case MarkSuspect:
		f.name("pod UID", c.PodUID)
		f.time("last seen", c.LastSeen)
	case ClearSuspect:
		f.name("pod UID", c.PodUID)
	default:
		panic(fmt.Sprintf("ledger: unknown command %T", command))
	}
	return f.refusal
}

// Open reports whether a reservation in this state still sets credits aside.
func (s ReservationState) Open() bool { return s == Held || s == Active }

func knownState(s ReservationState) bool {
	_, known := reservationTransitions[s]
	return known
}

// fieldCheck keeps the first thing that is wrong.
type fieldCheck struct{ refusal *Refusal }

func (f *fieldCheck) fail(code RefusalCode, format string, args ...any) {
	if f.refusal == nil {
		f.refusal = refuse(code, format, args...)
	}
}

func (f *fieldCheck) text(field, text string, least, most int) {
	switch {
	case len(text) < least:
		f.fail(Invalid, "%s is missing", field)
	case len(text) > most:
		f.fail(Invalid, "%s has %d bytes, at most %d are kept", field, len(text), most)
	case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
		f.fail(Invalid, "%s %q is not plain UTF-8 text", field, text)
	}
}

func (f *fieldCheck) name(field, text string) { f.text(field, text, 1, maxNameBytes) }

func (f *fieldCheck) account(field, name string) {
	f.name(field, name)
	if f.refusal == nil && !isAccountName(name) {
		f.fail(Invalid, "%s %q is not a DNS-1123 subdomain (lower case letters, digits, '-' and '.')", field, name)
	}
}

func (f *fieldCheck) workload(w WorkloadRef) {
	f.text("workload kind", w.Kind, 0, maxNameBytes)
	f.text("namespace", w.Namespace, 0, maxNameBytes)
	f.text("workload name", w.Name, 0, maxNameBytes)
}

func (f *fieldCheck) number(field string, n, least, most int64) {
	switch {
	case n < least:
		f.fail(Invalid, "%s is %d, the least is %d", field, n, least)
	case n > most:
		f.fail(OutOfRange, "%s is %d, the most is %d", field, n, most)
	}
}

func (f *fieldCheck) amount(field string, amount, least Microcredits) {
	switch {
	case amount < least:
		f.fail(Invalid, "%s is %s credits, the least is %s", field, FormatCredits(amount), FormatCredits(least))
	case amount > MaxAmount:
		f.fail(OutOfRange, "%s is %s credits, the most is %s", field, DisplayCredits(amount), DisplayCredits(MaxAmount))
	}
}

func (f *fieldCheck) time(field string, t time.Time) {
	if t.Before(earliest) || !t.Before(latest) {
		f.fail(Invalid, "%s %s is not a time between %d and %d", field, stamp(t), earliest.Year(), latest.Year())
	}
}

func (f *fieldCheck) hold(c PlaceHold) {
	f.name("workload UID", c.UID)
	f.account("account", c.Account)
	f.workload(c.Workload)
	f.name("class", c.Class)
	f.number("number of GPUs", c.MaxGPUs, 1, MaxGPUs)
	f.number("GPU-seconds", c.GPUSeconds, 1, MaxGPUSeconds)
}

func (f *fieldCheck) adjust(c Adjust) {
	f.account("account", c.Account)
	f.text("reason", c.Reason, 1, maxTextBytes)
	f.text("actor", c.Actor, 0, maxTextBytes)
	f.text("discrepancy", c.Discrepancy, 0, maxTextBytes)
	f.amount("amount", c.Amount, -MaxAmount)
	switch {
	case c.Amount == 0 && c.Discrepancy == "":
		f.fail(Invalid, "an adjustment of 0 credits changes nothing, unless it closes a discrepancy")
	case c.Amount == 0 && c.Corrects != 0:
		f.fail(Invalid, "an adjustment of 0 credits corrects no entry")
	case c.Corrects < 0:
		f.fail(Invalid, "entry %d cannot exist: entries count from 1", c.Corrects)
	}
}

func (f *fieldCheck) allocate(c Allocate) {
	f.name("pod UID", c.PodUID)
	f.workload(c.Pod)
	f.name("workload UID", c.Reservation)
	f.account("account", c.Account)
	f.name("node", c.Node)
	f.name("class", c.Class)
	f.number("number of GPUs", c.GPUs, 1, MaxGPUs)
	f.name("leadership", c.Leader)
	if c.Hold == nil {
		return
	}
	f.hold(*c.Hold)
	if c.Hold.UID != c.Reservation || c.Hold.Account != c.Account || c.Hold.Class != c.Class {
		f.fail(Invalid, "the hold inside names %s/%s/%s, the allocation %s/%s/%s (workload UID, account, class)",
			c.Hold.UID, c.Hold.Account, c.Hold.Class, c.Reservation, c.Account, c.Class)
	}
}

func (f *fieldCheck) gang(c AllocateGang) {
	f.number("number of members", int64(len(c.Members)), 1, MaxGangMembers)
	pods := make(map[string]bool, len(c.Members))
	for _, member := range c.Members {
		if f.refusal != nil {
			return
		}
		f.allocate(member)
		first := c.Members[0]
		switch {
		case member.AlreadyRunning:
			f.fail(Invalid, "pod %s of a gang runs already; allocate it by itself", member.PodUID)
		case pods[member.PodUID]:
			f.fail(Invalid, "pod %s is in the gang twice", member.PodUID)
		case member.Account != first.Account || member.Leader != first.Leader || member.LeaderEpoch != first.LeaderEpoch:
			f.fail(Invalid, "pod %s of the gang is paid by %s and placed by %s under epoch %d, the first one by %s, %s and %d",
				member.PodUID, member.Account, member.Leader, member.LeaderEpoch, first.Account, first.Leader, first.LeaderEpoch)
		}
		pods[member.PodUID] = true
	}
}

func (f *fieldCheck) interval(c RecordInterval) {
	f.name("pod UID", c.PodUID)
	f.name("node", c.Node)
	f.time("pod start", c.PodStartedAt)
	f.time("interval start", c.Start)
	f.time("interval end", c.End)
	if len(c.GPUUUIDs) > maxDevices {
		f.fail(OutOfRange, "the report names %d GPUs, the most is %d", len(c.GPUUUIDs), maxDevices)
	}
	for _, gpu := range c.GPUUUIDs {
		f.name("GPU UUID", gpu)
		if strings.ContainsFunc(gpu, unicode.IsControl) {
			f.fail(Invalid, "GPU UUID %q has control characters", gpu)
		}
	}
	// L21: an interval is never empty or negative, also after it was cut to microseconds.
	if !Instant(c.Start).Before(Instant(c.End)) {
		f.fail(Invalid, "interval [%s, %s) is empty or negative", stamp(c.Start), stamp(c.End))
	}
}

func refuse(code RefusalCode, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Message: fmt.Sprintf(format, args...)}
}

// stamp writes a time for messages and keys of discrepancies.
func stamp(t time.Time) string {
	if t.IsZero() {
		return "(unknown)"
	}
	return t.UTC().Format("2006-01-02T15:04:05.999999Z")
}
