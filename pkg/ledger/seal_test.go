package ledger_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gpubank/gpubank/pkg/ledger"
)

var sealStart = time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)

func chainEntry(id int64) ledger.Entry {
	at := sealStart.Add(time.Duration(id) * time.Second)
	return ledger.Entry{
		ID: id, Key: fmt.Sprintf("charge:pod:%d", id), Kind: ledger.EntryCharge, Debit: "team", Credit: ledger.SystemRevenue, Spender: "team",
		Amount: ledger.Microcredits(id), Reservation: "job", Allocation: "pod", Draws: []ledger.Take{{Lot: "grant:g", Amount: 1}},
		OccurredAt: at, RecordedAt: at, Reason: "r", Actor: "a",
	}
}

// Two entries that differ in any field have different hashes, also where one field's end could be another one's beginning.
func TestEveryFieldIsSealed(t *testing.T) {
	t.Parallel()
	changes := map[string]func(*ledger.Entry){
		"id":               func(e *ledger.Entry) { e.ID++ },
		"key":              func(e *ledger.Entry) { e.Key += "x" },
		"kind":             func(e *ledger.Entry) { e.Kind = ledger.EntryRefund },
		"debit":            func(e *ledger.Entry) { e.Debit = "other" },
		"credit":           func(e *ledger.Entry) { e.Credit = "other" },
		"amount":           func(e *ledger.Entry) { e.Amount++ },
		"spender":          func(e *ledger.Entry) { e.Spender = "" },
		"reservation":      func(e *ledger.Entry) { e.Reservation = "other" },
		"allocation":       func(e *ledger.Entry) { e.Allocation = "other" },
		"corrects":         func(e *ledger.Entry) { e.Corrects = 7 },
		"no draws":         func(e *ledger.Entry) { e.Draws = nil },
		"a draw's lot":     func(e *ledger.Entry) { e.Draws = []ledger.Take{{Lot: "grant:h", Amount: 1}} },
		"a draw's amount":  func(e *ledger.Entry) { e.Draws = []ledger.Take{{Lot: "grant:g", Amount: 2}} },
		"occurred":         func(e *ledger.Entry) { e.OccurredAt = e.OccurredAt.Add(time.Microsecond) },
		"recorded":         func(e *ledger.Entry) { e.RecordedAt = e.RecordedAt.Add(time.Microsecond) },
		"reason":           func(e *ledger.Entry) { e.Reason = "" },
		"actor":            func(e *ledger.Entry) { e.Actor = "b" },
		"a shifted border": func(e *ledger.Entry) { e.Reason, e.Actor = "", "ra" },
		"sides exchanged":  func(e *ledger.Entry) { e.Debit, e.Credit = e.Credit, e.Debit },
	}
	seen := map[[32]byte]string{ledger.NewChain("team").Extend(chainEntry(3)).Hash: "the entry itself"}
	for name, change := range changes {
		e := chainEntry(3)
		change(&e)
		hash := ledger.NewChain("team").Extend(e).Hash
		if other, twice := seen[hash]; twice {
			t.Errorf("%s: the hash is that of %s", name, other)
		}
		seen[hash] = name
	}
	if ledger.NewChain("team").Extend(chainEntry(3)).Hash == ledger.NewChain("other").Extend(chainEntry(3)).Hash {
		t.Error("two accounts' chains over the same entry are the same")
	}
}

// The form of hashes is for good: what was sealed, and pinned elsewhere, must verify with every later version.
func TestChainHashIsFixed(t *testing.T) {
	t.Parallel()
	head := ledger.NewChain("team").Extend(chainEntry(1)).Extend(chainEntry(2))
	if got, want := fmt.Sprintf("%x", head.Hash), "84e43035193fea41e17aa61ba2f7ee47f0d964f702b4275093ee45944a62cc27"; got != want {
		t.Errorf("the hash over two entries is %s, it was %s", got, want)
	}
}

// chainOf seals entries in stretches of random lengths.
func chainOf(random *rand.Rand, entries []ledger.Entry) (seals []ledger.Seal, stretches [][]ledger.Entry) {
	head := ledger.NewChain("team")
	for len(entries) > 0 {
		n := 1 + random.IntN(min(len(entries), 9))
		seal := ledger.SealEntries(head, entries[:n], sealStart)
		seals, stretches = append(seals, seal), append(stretches, entries[:n:n])
		head, entries = seal.Head, entries[n:]
	}
	return seals, stretches
}

func verify(seals []ledger.Seal, entries []ledger.Entry, pins ...ledger.ChainHead) []ledger.Difference {
	v := ledger.NewVerifier("team", pins)
	for _, seal := range seals {
		var found []ledger.Entry
		for len(entries) > 0 && !after(entries[0], seal.Head) {
			found, entries = append(found, entries[0]), entries[1:]
		}
		v.Seal(seal, found)
	}
	return v.End()
}

// after is the order of chains, as the store reads it.
func after(e ledger.Entry, head ledger.ChainHead) bool {
	return e.RecordedAt.After(head.LastRecordedAt) || e.RecordedAt.Equal(head.LastRecordedAt) && e.ID > head.LastEntry
}

// Whatever one change is made to whichever entry, the first difference names it; and without a change there is none.
func TestVerifierNamesTheFirstEntryThatDiffers(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	for range 2_000 {
		var entries []ledger.Entry
		for i := range 1 + random.IntN(40) {
			entries = append(entries, chainEntry(int64(10*i+10)))
		}
		seals, _ := chainOf(random, entries)
		pin := seals[random.IntN(len(seals))].Head
		if found := verify(seals, entries, pin); len(found) > 0 {
			t.Fatalf("seed %d: nothing was changed, found %+v", seed, found)
		}
		at := random.IntN(len(entries))
		changed := append([]ledger.Entry(nil), entries...)
		want := ledger.Difference{Kind: ledger.EntryChanged, Entry: entries[at].ID}
		switch random.IntN(3) {
		case 0:
			changed[at].Amount++
		case 1:
			changed = append(changed[:at], changed[at+1:]...)
			want.Kind = ledger.EntryMissing
		case 2:
			extra := chainEntry(entries[at].ID - 5)
			changed = append(changed[:at], append([]ledger.Entry{extra}, changed[at:]...)...)
			want = ledger.Difference{Kind: ledger.EntryInserted, Entry: extra.ID}
		}
		found := verify(seals, changed)
		if len(found) != 1 || found[0].Kind != want.Kind || found[0].Entry != want.Entry || found[0].Account != "team" {
			t.Fatalf("seed %d: %d entries, want %+v, found %+v", seed, len(entries), want, found)
		}
	}
}

func TestVerifierOfSealsAndPins(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	var entries []ledger.Entry
	for i := range 30 {
		entries = append(entries, chainEntry(int64(i+1)))
	}
	seals, _ := chainOf(random, entries)
	pin := seals[len(seals)-1].Head
	for _, c := range []struct {
		name   string
		change func(seals []ledger.Seal) []ledger.Seal
	}{
		{"a hash", func(s []ledger.Seal) []ledger.Seal { s[2].Head.Hash[5]++; return s }},
		{"a check", func(s []ledger.Seal) []ledger.Seal {
			s[2].Checks = append([]byte(nil), s[2].Checks...)
			s[2].Checks[0]++
			return s
		}},
		{"its list", func(s []ledger.Seal) []ledger.Seal { s[2].IDs = s[2].IDs[:len(s[2].IDs)-1]; return s }},
		{"a seal in the middle", func(s []ledger.Seal) []ledger.Seal { return append(s[:2:2], s[3:]...) }},
		{"its count", func(s []ledger.Seal) []ledger.Seal { s[2].Head.Entries++; return s }},
	} {
		if found := verify(c.change(append([]ledger.Seal(nil), seals...)), entries); len(found) == 0 {
			t.Errorf("%s was changed, and nothing found", c.name)
		}
	}

	// Somebody who may write everything makes all seals anew; what was pinned outside tells.
	forged := append([]ledger.Entry(nil), entries...)
	forged[3].Amount = 1_000
	again, _ := chainOf(random, forged)
	if found := verify(again, forged); len(found) > 0 {
		t.Fatalf("seals made anew are found wrong without a pin: %+v", found)
	}
	if found := verify(again, forged, pin); len(found) != 1 || found[0].Kind != ledger.HeadDiffers {
		t.Errorf("against the pin: %+v", found)
	}
	short, _ := chainOf(random, entries[:20])
	if found := verify(short, entries[:20], pin); len(found) != 1 || found[0].Kind != ledger.HeadDiffers {
		t.Errorf("the end was cut off with its seals: %+v", found)
	}
	// What was found once does not hide what is changed later.
	twice := append([]ledger.Entry(nil), entries...)
	twice[1].Amount++
	twice[28].Amount++
	if found := verify(seals, twice); len(found) != 2 || found[0].Entry != 2 || found[1].Entry != 29 {
		t.Errorf("two changes: %+v", found)
	}
}
