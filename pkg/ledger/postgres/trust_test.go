package postgres_test

import (
	"testing"

	"github.com/gpubank/gpubank/pkg/ledger"
	lt "github.com/gpubank/gpubank/pkg/ledger/ledgertest"
	"github.com/gpubank/gpubank/pkg/ledger/postgres"
)

// I6 of holds in the first batch of a process, which takes them to be new: each that is not gets the answer that it had.
func TestHoldsThatAreNotNew(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.teamWith("team", 1_000)
	f.do(lt.Hold("job", "team", 1, 900))
	dear := lt.Hold("dear", "team", 1, 500)
	f.refused(dear, ledger.InsufficientCredits)
	big := lt.Hold("big", "team", 1, 9_000)
	f.do(lt.Grant("more", "team", 10_000), big)

	otherKey, otherTerms, otherContent := lt.Hold("job", "team", 1, 900), lt.Hold("job", "team", 1, 800), lt.Hold("job", "team", 2, 450)
	otherKey.Key, otherTerms.Key = "other-key", "other-terms"
	bigAgain := big
	bigAgain.Key = "big-again"
	keyOfOther := lt.Hold("fresh", "team", 1, 10)
	keyOfOther.Key = dear.Key
	for _, c := range []struct {
		name     string
		command  ledger.Command
		refused  ledger.RefusalCode
		replayed bool
	}{
		{name: "the same again", command: lt.Hold("job", "team", 1, 900), replayed: true},
		{name: "the same again, though there are no credits for another", command: big, replayed: true},
		{name: "likewise under another key", command: bigAgain, replayed: true},
		{name: "a refusal again, though there would be credits now", command: dear, refused: ledger.InsufficientCredits, replayed: true},
		{name: "its workload under another key", command: otherKey, replayed: true},
		{name: "its workload on other terms", command: otherTerms, refused: ledger.TermsDiffer},
		{name: "its key with other content", command: otherContent, refused: ledger.KeyReused},
		{name: "another's key for a new workload", command: keyOfOther, refused: ledger.KeyReused},
		{name: "new, and refused", command: lt.Hold("too-dear", "team", 1, 9_000), refused: ledger.InsufficientCredits},
		{name: "new, and of nobody", command: lt.Hold("unknown", "nobody", 1, 10), refused: ledger.UnknownAccount},
		{name: "new", command: lt.Hold("next", "team", 1, 10)},
	} {
		// Each with a neighbour that is new and must not suffer, and in a process of its own.
		neighbour := lt.Hold("neighbour of "+c.name, "team", 1, 1)
		neighbour.UID, neighbour.Key = "neighbour-"+c.command.CommandKey()+string(c.refused), "hold:neighbour-"+c.command.CommandKey()+string(c.refused)
		neighbour.Workload.Name = "neighbour"
		verdicts, err := f.open(postgres.Options{Clock: f.clock}).SubmitAll(t.Context(), []ledger.Command{neighbour, c.command, neighbour})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		var code ledger.RefusalCode
		if verdicts[1].Refusal != nil {
			code = verdicts[1].Refusal.Code
		}
		if code != c.refused || verdicts[1].Replayed != c.replayed {
			t.Errorf("%s: refused %q, replayed %t; want %q, %t", c.name, code, verdicts[1].Replayed, c.refused, c.replayed)
		}
		if verdicts[0].Refusal != nil || verdicts[0].Replayed || verdicts[2].Refusal != nil || !verdicts[2].Replayed {
			t.Errorf("%s: its neighbour got %+v, and then %+v", c.name, verdicts[0].Refusal, verdicts[2].Refusal)
		}
	}
	f.figures("team", 11_000, 900+9_000+11+10, 0)
}
