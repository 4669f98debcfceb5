package simulation

import (
	"fmt"
	"reflect"
	"sync"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// book keeps what was asked and what was answered: all that a caller can know.
type book struct {
	mu         sync.Mutex
	records    []*record
	byKey      map[string][]*record
	violations []string
}

// record is one command: a key with a content.
type record struct {
	command ledger.Command
	hash    [32]byte
	// lost counts the times that it was sent and no answer came.
	lost int
	// final is the answer for good; nil while there is none, or only one that says "not yet".
	final *ledger.Verdict
	// last is the latest answer of any kind.
	last *ledger.Verdict
	// payer of a hold, from the rows beside the answer.
	payer string
}

func (r *record) accepted() bool { return r.final != nil && r.final.Refusal == nil }

// unknown: it may have been carried out, and no answer says so.
func (r *record) unknown() bool { return r.final == nil && r.lost > 0 }

func newBook() *book { return &book{byKey: make(map[string][]*record)} }

// violate notes something that must not be.
func (b *book) violate(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.violateLocked(format, args...)
}

func (b *book) violateLocked(format string, args ...any) {
	const most = 50 // what follows is mostly the same
	if len(b.violations) < most {
		b.violations = append(b.violations, fmt.Sprintf(format, args...))
	}
}

// entry finds or begins the record of a command.
func (b *book) entry(command ledger.Command) *record {
	hash := ledger.ContentHash(command)
	for _, r := range b.byKey[command.CommandKey()] {
		if r.hash == hash {
			return r
		}
	}
	r := &record{command: command, hash: hash}
	b.records = append(b.records, r)
	b.byKey[command.CommandKey()] = append(b.byKey[command.CommandKey()], r)
	return r
}

// sent notes commands before they leave: from here on they may have been carried out.
func (b *book) sent(commands []ledger.Command) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range commands {
		b.entry(c).lost++
	}
}

// answered notes what came back.
func (b *book) answered(commands []ledger.Command, verdicts []ledger.Verdict) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(commands) != len(verdicts) {
		b.violateLocked("%d commands got %d answers", len(commands), len(verdicts))
		return
	}
	for i, c := range commands {
		r := b.entry(c)
		r.lost--
		b.note(r, verdicts[i])
	}
}

func (b *book) note(r *record, v ledger.Verdict) {
	b.checkRows(r.command, v)
	if v.Reservation != nil {
		r.payer = v.Reservation.Payer
	}
	given := ledger.Verdict{Refusal: v.Refusal, RateVersion: v.RateVersion, Charged: v.Charged, Refunded: v.Refunded}
	r.last = &given
	switch {
	case r.final == nil && forGood(r.command, v):
		r.final = &given
	case r.final != nil && !sameAnswer(*r.final, given) && !epochPassed(v):
		b.violateLocked("I6: %T %s was answered %s and then %s", r.command, r.command.CommandKey(), describe(*r.final), describe(given))
	}
}

// forGood reports whether the same command will be answered the same for ever.
func forGood(command ledger.Command, v ledger.Verdict) bool {
	if _, ok := command.(ledger.PostDue); ok {
		return false
	}
	return v.Refusal == nil || !v.Refusal.Code.Retryable() && v.Refusal.Code != ledger.Invalid
}

// epochPassed: a stale epoch is refused before anything is remembered (I7).
func epochPassed(v ledger.Verdict) bool {
	return v.Refusal != nil && v.Refusal.Code == ledger.StaleEpoch
}

func sameAnswer(a, b ledger.Verdict) bool {
	if a.RateVersion != b.RateVersion || a.Charged != b.Charged || a.Refunded != b.Refunded {
		return false
	}
	return reflect.DeepEqual(a.Refusal, b.Refusal)
}

func describe(v ledger.Verdict) string {
	if v.Refusal != nil {
		return "no, " + v.Refusal.Error()
	}
	return fmt.Sprintf("yes, rate version %d, charged %d, refunded %d", v.RateVersion, v.Charged, v.Refunded)
}

// checkRows looks at the rows beside a fresh answer: they are as the command left them.
func (b *book) checkRows(command ledger.Command, v ledger.Verdict) {
	if v.Refusal != nil || v.Replayed {
		return
	}
	switch c := command.(type) {
	case ledger.PlaceHold:
		r := v.Reservation
		if r == nil || r.UID != c.UID || r.Account != c.Account || r.GPUSeconds != c.GPUSeconds || r.State != ledger.Held {
			b.violateLocked("I5: hold %+v was placed as %+v", c, r)
		}
		if a := v.Account; r != nil && a != nil && r.Payer == a.Name && a.Available() < -a.Policy.OverdraftLimit {
			b.violateLocked("I1: after hold %s account %s has %d available, its overdraft limit is %d", c.Key, a.Name, a.Available(), a.Policy.OverdraftLimit)
		}
	case ledger.Allocate:
		if a := v.Allocation; a == nil || a.PodUID != c.PodUID || a.Node != c.Node || a.State != ledger.AllocationIntended || v.Reservation == nil || v.Reservation.State != ledger.Active {
			b.violateLocked("I5: allocation %+v was made as %+v under %+v", c, v.Allocation, v.Reservation)
		}
	case ledger.EndAllocation:
		if a := v.Allocation; a == nil || a.Open() {
			b.violateLocked("I5: pod %s was ended and is %+v", c.PodUID, a)
		}
	case ledger.CloseReservation:
		if r := v.Reservation; r == nil || r.Open() {
			b.violateLocked("I5: workload %s was closed and is %+v", c.UID, r)
		}
	}
}
