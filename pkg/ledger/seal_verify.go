package ledger

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"
	"time"
)

// DifferenceKind says how an account's entries differ from their seals.
type DifferenceKind string

const (
	// EntryChanged: the entry does not say what it said when it was sealed.
	EntryChanged DifferenceKind = "changed"
	// EntryMissing: the entry was sealed and is not among the account's entries any more.
	EntryMissing DifferenceKind = "missing"
	// EntryInserted: the entry was not there when those around it were sealed.
	EntryInserted DifferenceKind = "inserted"
	// SealDamaged: the seal itself was changed, or one before it is missing.
	SealDamaged DifferenceKind = "seal"
	// HeadDiffers: the entries agree with the seals, and both differ from a head that was pinned outside: all of them were
	// written anew.
	HeadDiffers DifferenceKind = "head"
)

// Difference is where an account's entries first differ from its chain.
type Difference struct {
	Account string
	Kind    DifferenceKind
	// Entry is the ID of the first entry that differs; 0 where none is at fault by itself.
	Entry  int64
	Detail string
	// Found tells a change from another change of the same entry; see Violation.Mark.
	Found string
}

// Violation is the difference as an audit reports it.
func (d Difference) Violation() Violation {
	return Violation{
		Invariant: "I8", Subject: "account " + d.Account, Detail: d.Detail, Entry: d.Entry,
		Accounts: []string{d.Account}, Mark: fmt.Sprintf("chain:%s:%d:%s", d.Kind, d.Entry, d.Found),
	}
}

// Verifier walks one account's chain from its beginning and compares it with the entries that are there.
type Verifier struct {
	head  ChainHead
	pins  []ChainHead // those not met yet, by Entries
	diffs []Difference
}

// NewVerifier begins an account's chain. Pins are heads of it that were printed earlier and kept elsewhere.
func NewVerifier(account string, pins []ChainHead) *Verifier {
	pins = slices.SortedFunc(slices.Values(pins), func(a, b ChainHead) int { return cmp.Compare(a.Entries, b.Entries) })
	v := &Verifier{head: NewChain(account), pins: pins}
	v.comparePins()
	return v
}

// Head is how far the chain was walked.
func (v *Verifier) Head() ChainHead { return v.head }

// Seal compares the next seal with the account's entries after the seal before it, up to and including the seal's last
// (RecordedAt, ID), in that order. Of each seal the first difference is kept; the next one is compared from where the seal
// says that it ended, so that what was found, and accepted, once does not hide what is changed later.
func (v *Verifier) Seal(s Seal, found []Entry) {
	if !v.walk(s, found) {
		v.head = s.Head
		v.pins = slices.DeleteFunc(v.pins, func(pin ChainHead) bool { return pin.Entries < v.head.Entries })
		v.comparePins()
	}
}

// walk reports whether the head is now at the seal's end.
func (v *Verifier) walk(s Seal, found []Entry) bool {
	if s.Head.Seals != v.head.Seals+1 || s.Head.Entries != v.head.Entries+s.Entries {
		v.differ(SealDamaged, firstID(found, s.First), "seal %d ends after %d entries and is followed by seal %d with %d entries that ends after %d: seals were removed or changed",
			v.head.Seals, v.head.Entries, s.Head.Seals, s.Entries, s.Head.Entries)
		return false
	}
	ids, err := s.ids()
	if err != nil {
		v.differ(SealDamaged, s.First, "seal %d was changed: %s", s.Head.Seals, err)
		return false
	}
	for i, id := range ids {
		if i >= len(found) || found[i].ID != id {
			v.misplaced(ids[i:], found[min(i, len(found)):])
			return false
		}
		next := v.head.Extend(found[i])
		if !bytes.Equal(next.Hash[:CheckSize], s.Checks[i*CheckSize:(i+1)*CheckSize]) {
			v.differ(EntryChanged, id, "entry %d is not what was sealed %s; it now says: %s", id, stamp(s.SealedAt), found[i].Describe())
			v.diffs[len(v.diffs)-1].Found = short(next.Hash)
			return false
		}
		v.head = next
		if i < len(ids)-1 {
			v.comparePins()
		}
	}
	if len(found) > len(ids) {
		v.misplaced(nil, found[len(ids):])
		return false
	}
	v.head.Seals++
	if v.head.Hash != s.Head.Hash || !v.head.LastRecordedAt.Equal(s.Head.LastRecordedAt) {
		v.differ(SealDamaged, s.Head.LastEntry, "seal %d was changed: the hash after entry %d is %s, the seal says %s",
			s.Head.Seals, s.Head.LastEntry, short(v.head.Hash), short(s.Head.Hash))
	}
	v.comparePins()
	return true // where every check agrees it is the seal's hash that was changed, and the next seal was made before that
}

// misplaced tells an entry that is missing from one that was slipped in, given what the seal and the table have from the
// first place on where they differ.
func (v *Verifier) misplaced(sealed []int64, found []Entry) {
	if len(sealed) > 0 && !slices.ContainsFunc(found, func(e Entry) bool { return e.ID == sealed[0] }) {
		v.differ(EntryMissing, sealed[0], "entry %d was sealed and is not there any more, or not with this account and time", sealed[0])
		return
	}
	v.differ(EntryInserted, found[0].ID, "entry %d was not there when the entries around it were sealed; it says: %s", found[0].ID, found[0].Describe())
}

// End finishes the walk after the last seal and returns the differences, the first one first.
func (v *Verifier) End() []Difference {
	if len(v.pins) > 0 {
		v.differ(HeadDiffers, v.head.LastEntry, "a head over %d entries was pinned, the chain has %d: entries were removed together with their seals",
			v.pins[0].Entries, v.head.Entries)
		v.pins = nil
	}
	return v.diffs
}

// comparePins compares the head with those that were pinned after as many entries.
func (v *Verifier) comparePins() {
	for len(v.pins) > 0 && v.pins[0].Entries <= v.head.Entries {
		pin := v.pins[0]
		v.pins = v.pins[1:]
		if pin.Hash != v.head.Hash {
			v.differ(HeadDiffers, v.head.LastEntry, "after %d entries, at entry %d, the chain's hash is %s and the pinned one %s: this or an earlier entry was changed together with its seals",
				v.head.Entries, v.head.LastEntry, short(v.head.Hash), short(pin.Hash))
		}
	}
}

func (v *Verifier) differ(kind DifferenceKind, entry int64, format string, args ...any) {
	v.diffs = append(v.diffs, Difference{Account: v.head.Account, Kind: kind, Entry: entry, Detail: fmt.Sprintf(format, args...)})
}

// ChainReport is what a verification found.
type ChainReport struct {
	Violations []Violation
	// Sealed entries agree with their chains but for the violations; Unsealed ones are not in a chain yet, since UnsealedSince
	// at the longest. An entry of two accounts counts twice.
	Sealed, Unsealed int64
	UnsealedSince    time.Time
}

// SealResult is what one step of sealing did.
type SealResult struct {
	// Entries were sealed, an entry of two accounts in both of their chains.
	Entries int64
	// More: there may be more to seal at once.
	More bool
	// Busy: another process was sealing; nothing was done.
	Busy bool
}

func firstID(found []Entry, otherwise int64) int64 {
	if len(found) > 0 {
		return found[0].ID
	}
	return otherwise
}

// Describe is what an entry says, in one line for a person.
func (e Entry) Describe() string {
	text := fmt.Sprintf("%s of %s credits from %s to %s", e.Kind, FormatCredits(e.Amount), e.Debit, e.Credit)
	if e.Spender != "" {
		text += " for " + e.Spender
	}
	return fmt.Sprintf("%s, recorded %s, key %q", text, stamp(e.RecordedAt), e.Key)
}

// short is enough of a hash to tell two apart by eye.
func short(hash [32]byte) string { return hex.EncodeToString(hash[:8]) + "…" }
