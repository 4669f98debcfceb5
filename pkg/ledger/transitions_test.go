package ledger

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// doc.go lists the transitions for readers; this compares it with the tables.
func TestTransitionsAreAsDrawn(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	documented := make(map[string][]string)
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(strings.NewReplacer("//", "", ",", "").Replace(line))
		if len(words) > 3 && words[2] == "to" && (words[0] == "reservation" || words[0] == "allocation") {
			documented[words[0]+" "+words[1]] = words[3:]
		}
	}
	for from, next := range reservationTransitions {
		compareTransitions(t, "reservation "+string(from), documented, next)
	}
	for from, next := range allocationTransitions {
		compareTransitions(t, "allocation "+string(from), documented, next)
	}
	if len(documented) != 7 {
		t.Errorf("doc.go documents transitions from %d states, want 7", len(documented))
	}
}

func compareTransitions[S ~string](t *testing.T, from string, documented map[string][]string, next []S) {
	t.Helper()
	var want []string
	for _, state := range next {
		want = append(want, string(state))
	}
	if !slices.Equal(documented[from], want) {
		t.Errorf("doc.go says %s may become %v, the table says %v", from, documented[from], want)
	}
}

// I5: what is final stays final, and every state is listed.
func TestFinalStates(t *testing.T) {
	t.Parallel()
	for _, from := range ReservationStates {
		for _, to := range ReservationStates {
			if !from.Open() && from.MayBecome(to) {
				t.Errorf("a %s reservation may become %s", from, to)
			}
		}
	}
	if len(ReservationStates) != len(reservationTransitions) || len(AllocationStates) != len(allocationTransitions) {
		t.Error("a state is missing from the lists of states")
	}
	for _, to := range AllocationStates {
		if AllocationEnded.MayBecome(to) {
			t.Errorf("an ended allocation may become %s", to)
		}
	}
}
