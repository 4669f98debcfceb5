package ledger

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"
)

// A chain makes an account's history tamper-evident: the hash after each of its entries covers the entry and the hash
// before it, so that nothing can be changed, left out or slipped in without changing every hash from there on. An entry is in
// the chain of each account that it names as debit, credit or spender; system accounts have no chains. The order is that of
// RecordedAt, then ID, which is the order of commits (see Account.LastEntryAt). See docs/designs/seals.md.

// ChainHead is the end of an account's chain, or of its beginning.
type ChainHead struct {
	Account string
	// Seals and Entries count what the chain has until here.
	Seals, Entries int64
	// LastEntry is the ID of its last entry and LastRecordedAt its time; both zero for an empty chain.
	LastEntry      int64
	LastRecordedAt time.Time
	Hash           [sha256.Size]byte
}

// chainSalt keeps hashes of this purpose and form apart from all others.
const chainSalt = "gpubank.io/entry-chain/1\x00"

// NewChain is the empty chain of an account. Chains of two accounts differ from the start.
func NewChain(account string) ChainHead {
	return ChainHead{Account: account, Hash: sha256.Sum256([]byte(chainSalt + account))}
}

// Extend is the chain with one more entry.
func (h ChainHead) Extend(e Entry) ChainHead {
	sum := sha256.New()
	sum.Write(h.Hash[:])
	sum.Write(canonicalEntry(e))
	h.Entries++
	h.LastEntry, h.LastRecordedAt = e.ID, e.RecordedAt
	sum.Sum(h.Hash[:0])
	return h
}

// entryForm is the version of canonicalEntry. Another form needs another version, and the old one is kept for what it sealed.
const entryForm = 1

// canonicalEntry is an entry as bytes that no other entry has: every field in a fixed order, texts with their length before
// them, numbers as varints.
func canonicalEntry(e Entry) []byte {
	b := []byte{entryForm}
	text := func(s string) { b = append(binary.AppendUvarint(b, uint64(len(s))), s...) }
	number := func(n int64) { b = binary.AppendVarint(b, n) }
	number(e.ID)
	text(string(e.Kind))
	text(e.Key)
	text(e.Debit)
	text(e.Credit)
	number(int64(e.Amount))
	text(e.Spender)
	text(e.Reservation)
	text(e.Allocation)
	number(e.Corrects)
	number(int64(len(e.Draws)))
	for _, draw := range e.Draws {
		text(draw.Lot)
		number(int64(draw.Amount))
	}
	number(e.OccurredAt.UnixMicro())
	number(e.RecordedAt.UnixMicro())
	text(e.Reason)
	text(e.Actor)
	return b
}

// Seal is a stretch of an account's chain as it is stored. Hash is what counts; IDs and Checks, ten bytes or so per entry, only
// serve to name the first entry that differs.
type Seal struct {
	// Head is the chain's end after the seal; Head.Seals is the seal's number, from 1.
	Head ChainHead
	// Entries counts those in the seal, 1 to MaxSealEntries; First is the ID of the first.
	Entries int64
	First   int64
	// IDs are those of its entries: the first from 0, each other one from the one before, as varints.
	IDs []byte
	// Checks are the first CheckSize bytes of the hash after each entry.
	Checks   []byte
	SealedAt time.Time
}

const (
	// CheckSize bytes tell an entry from a changed one but for one in 2^64; the seal's hash is whole.
	CheckSize = 8
	// MaxSealEntries bounds a seal to some 50 kB, and what a verification holds in memory of one.
	MaxSealEntries = 4_096
)

// SealEntries seals the next entries of a chain, 1 to MaxSealEntries of them, in the chain's order.
func SealEntries(head ChainHead, entries []Entry, now time.Time) Seal {
	if len(entries) == 0 || len(entries) > MaxSealEntries {
		panic(fmt.Sprintf("ledger: a seal over %d entries; it takes 1 to %d", len(entries), MaxSealEntries))
	}
	seal := Seal{Entries: int64(len(entries)), First: entries[0].ID, SealedAt: Instant(now)}
	before := int64(0)
	for _, e := range entries {
		head = head.Extend(e)
		seal.IDs = binary.AppendVarint(seal.IDs, e.ID-before)
		seal.Checks = append(seal.Checks, head.Hash[:CheckSize]...)
		before = e.ID
	}
	head.Seals++
	seal.Head = head
	return seal
}

// ids reads the IDs back; an error says that the seal was damaged.
func (s Seal) ids() ([]int64, error) {
	var ids []int64
	last := int64(0)
	for rest := s.IDs; len(rest) > 0; {
		step, n := binary.Varint(rest)
		if n <= 0 {
			return nil, fmt.Errorf("its list of entries ends in the middle")
		}
		last, rest = last+step, rest[n:]
		ids = append(ids, last)
	}
	if int64(len(ids)) != s.Entries || len(s.Checks) != CheckSize*len(ids) || len(ids) == 0 {
		return nil, fmt.Errorf("it lists %d entries and %d bytes of checks for %d entries", len(ids), len(s.Checks), s.Entries)
	}
	if ids[0] != s.First || last != s.Head.LastEntry {
		return nil, fmt.Errorf("it goes from entry %d to %d, and lists %d to %d", s.First, s.Head.LastEntry, ids[0], last)
	}
	return ids, nil
}
